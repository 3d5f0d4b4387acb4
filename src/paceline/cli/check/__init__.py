"""`paceline check`: reports mistakes in a script and its job before anything of it runs."""
