"""Makes a job of a command line: the common part of `run`, `submit` and `bench`."""
