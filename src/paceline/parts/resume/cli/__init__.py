"""The verb `paceline resume`."""
