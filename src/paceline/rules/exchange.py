"""Pages of the X codes: gradient exchange, backends, emulated networks, `paceline bench`.

Laid out as those of usage.
"""

PAGES: dict[str, str] = {}
