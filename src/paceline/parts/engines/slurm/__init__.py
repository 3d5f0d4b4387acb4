"""The engine that runs a job on a Slurm cluster."""
