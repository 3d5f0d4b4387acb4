"""Goes on after a rank was killed. At the head of its training loop the rank keeps its training state in a state buffer, which outlives
it. A new rank runs the script again from the top, skips what the loops have done, gets the state back in place, and trains on bit for bit.
"""
