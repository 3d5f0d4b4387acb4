"""Read a machine, a process or a network path into facts; one file per source, each a pure `parse` and a thin `read`.

A source that cannot be read gives its reason, never a zero.
"""
