"""`--resume auto`: after a killed rank all ranks go on at the newest step that all have kept, and a later job at the newest saved one.

For whoever trains where ranks or machines are lost and whose script has no checkpoint of its own for it. State: preview.
"""
