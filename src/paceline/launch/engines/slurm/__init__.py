"""Slurm as a place to run a job."""
