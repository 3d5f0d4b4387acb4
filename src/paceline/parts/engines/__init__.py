"""Engines: a job is given to SSH hosts (`paceline run --hosts`), Ray, Slurm, SageMaker or this machine, found again, observed and ended.

For whoever trains on machines that something else hands out. State: kept.
"""
