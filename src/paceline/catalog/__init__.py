"""Instance types and accelerators: data files with their sources, and the typed lookup over them."""
