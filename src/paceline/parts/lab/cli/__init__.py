"""The verb `paceline bench`, and networks of local hosts."""
