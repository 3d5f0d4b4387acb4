"""Runs a training script up to its first optimizer step on tensors without data: what a step needs, seen without the hardware.

This room lives in a process of its own, started as `python -m paceline.trace` with the interpreter that the script would have; standard
library and torch only, nobody imports it.
"""
