"""Exchange of gradients: the backends of paceline, and strategies for DDP's buckets (`--gradients`).

For whoever trains on a network that is slower than the exchange. State: kept.
"""
