"""`paceline completion`: scripts that complete the command line, made of the rows of the verbs."""
