"""The facts about a job in trouble, and what follows from them: pure code, from facts to facts.

`case.py` has the nouns. Agents fill them (`launch/agent/heartbeats.py`, `launch/inspect/snapshot.py`), the rules in `rules/causes/` read
them.
"""
