"""Engines: what gives a job to other hosts, over ssh (`paceline run --hosts`), on Slurm or on Ray, and what follows it there.

For whoever trains on more machines than the one at hand. State: kept.
"""
