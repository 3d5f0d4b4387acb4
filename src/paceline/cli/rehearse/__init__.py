"""`paceline rehearse`."""
