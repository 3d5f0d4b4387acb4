"""The places where a job can run. Each folder here is an engine."""
