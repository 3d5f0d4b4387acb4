"""SageMaker: its estimators, its API on this machine, the engine that submits to it, and `smdistributed` in a rank.

For whoever trains on SageMaker or has scripts that were written for it. State: kept.
"""
