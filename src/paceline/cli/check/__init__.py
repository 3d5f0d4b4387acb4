"""`paceline check`: what is wrong with a script and its job, said before anything of it runs."""
