"""`paceline bench`."""
