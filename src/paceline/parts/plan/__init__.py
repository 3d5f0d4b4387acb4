"""What a job will need: memory, time and money of a step and of the whole, before a machine is paid for.

For whoever chooses machines for a job. State: kept.
"""
