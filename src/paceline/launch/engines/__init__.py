"""The places a job can run, one file each; a file here is an engine."""
