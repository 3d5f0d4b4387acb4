"""Short runs, and what is read from them: rehearsals at growing sizes, steps with each strategy."""
