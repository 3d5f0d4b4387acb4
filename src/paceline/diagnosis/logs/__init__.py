"""Plain logs and flight recorder dumps of jobs that ran without paceline."""
