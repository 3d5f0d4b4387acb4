"""Which strategy is fastest here, measured while the job trains."""
