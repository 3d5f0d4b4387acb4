"""From a command line to a job: what `run`, `submit`, `rehearse` and `bench` have in common."""
