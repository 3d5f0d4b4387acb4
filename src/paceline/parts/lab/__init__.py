"""What is measured before a job is trusted: benchmarks, rehearsals, and hosts with links of their own on one machine.

For whoever chooses machines, networks and strategies by measurement. State: kept.
"""
