"""What a training job will need, how fast it will go and what it will cost: arithmetic over a workload and machines, no input or output."""
