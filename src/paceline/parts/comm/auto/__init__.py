"""Measures, while the job trains, which strategy is fastest."""
