"""Raises, and has something to write all the same."""

import atexit

from way_out import last_stage, train

train()
atexit.register(last_stage, "handler")
raise ValueError("this script fails on purpose")
