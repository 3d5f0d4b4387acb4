"""Pages of runs for a browser: the live page (`paceline web`, `paceline run --web`), pictures, and exports for other viewers.

For whoever looks at a run away from its terminal. State: kept.
"""
