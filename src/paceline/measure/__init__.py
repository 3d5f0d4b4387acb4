"""Makes short runs and reads their results: rehearsals at growing sizes, steps with each strategy."""
