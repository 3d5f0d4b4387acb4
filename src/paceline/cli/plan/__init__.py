"""`paceline plan`."""
