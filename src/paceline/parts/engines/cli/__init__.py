"""The verb `paceline submit`, and `paceline run --hosts`."""
