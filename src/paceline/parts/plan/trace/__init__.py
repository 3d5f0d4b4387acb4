"""Runs a training script up to its first optimizer step on tensors without data: this shows what a step needs, without the hardware.

This package runs in its own process, started as `python -m paceline.parts.plan.trace` with the script's interpreter. It imports the
standard library and torch only, and no other package imports it.
"""
