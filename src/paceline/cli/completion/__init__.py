"""`paceline help --completion`: completion scripts for shells, generated from the rows of the verbs."""
