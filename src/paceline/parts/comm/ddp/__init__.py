"""The communication hook of DistributedDataParallel and its state, attached to a model."""
