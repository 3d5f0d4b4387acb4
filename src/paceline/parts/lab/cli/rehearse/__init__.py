"""`paceline bench --rehearse`."""
