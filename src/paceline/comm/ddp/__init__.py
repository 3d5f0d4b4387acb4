"""What DistributedDataParallel is told: the communication hook and its state, attached to a model."""
