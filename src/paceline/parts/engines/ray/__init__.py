"""The engine that runs a job on a Ray cluster. One actor on each host runs the host's agent. The engine needs Ray core only."""
