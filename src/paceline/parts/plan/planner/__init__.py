"""Predicts what a training job needs, how fast it runs and what it costs: arithmetic over a workload and machines."""
