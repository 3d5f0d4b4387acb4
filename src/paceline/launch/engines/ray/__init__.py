"""A Ray cluster as a place to run a job: one actor keeps one agent on each host. Needs Ray core alone."""
