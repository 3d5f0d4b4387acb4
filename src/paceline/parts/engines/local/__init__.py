"""The engine that runs a job on this machine."""
