"""paceline: data-parallel training that keeps its pace and says why when it does not.

Importing this package loads nothing else: the verbs are in `paceline.cli`, and the code inside a rank is in `paceline.worker`.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
