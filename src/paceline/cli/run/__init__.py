"""`paceline run`."""
