"""Jobs that train, but slower than they could: which rank, since when, by how much."""
