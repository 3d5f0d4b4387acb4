"""The places a job can run, one folder each; a folder here is an engine."""
