"""Raises, and has something to write all the same."""

import atexit

from way_out import stage, train

train()
atexit.register(stage, "handler")
raise ValueError("this script fails on purpose")
