"""What is known of a job in trouble, and what follows from it: pure code, from facts to facts.

`case.py` has the nouns. Agents fill them (`launch/watch.py`, `launch/look.py`), the rules below `rules/causes/` read them.
"""
