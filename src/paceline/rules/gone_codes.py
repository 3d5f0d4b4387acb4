"""Codes that paceline no longer prints. Each was merged into the code of its kind of trouble, whose page has what was worth knowing.

Old recordings, old outputs and other people's notes still have them. None is ever given to anything else.
"""

SAID_NOW = {
    # A word that is not known, a value that cannot be, options that do not fit together.
    **dict.fromkeys(("U30", "U53"), "U01"),
    **dict.fromkeys(("P02", "X01", "X02", "X10", "X11", "X30"), "U03"),
    **dict.fromkeys(("E03", "E16", "X04", "X12", "X31", "X32"), "U05"),
    **dict.fromkeys(("U33", "U35", "U38", "U39", "U40", "U41", "U42", "U44", "U47", "U54"), "U31"),
    **dict.fromkeys(("U08", "U34", "X22", "X24"), "U32"),
    # What the job is made of: script and code, data, hyperparameters, files.
    **dict.fromkeys(("U45", "U46"), "U02"),
    **dict.fromkeys(("E55", "E57", "U43"), "U06"),
    **dict.fromkeys(("U16", "U37"), "U07"),
    **dict.fromkeys(("P07", "U17", "U24"), "U27"),
    **dict.fromkeys(("E12", "E13", "E27", "E38", "E46", "E56", "F15", "U13", "U26"), "U22"),
    # What the machine has, and what it allows.
    **dict.fromkeys(("E18", "E30", "E50", "U10", "U36"), "E01"),
    **dict.fromkeys(("E15", "E23", "E39", "E44"), "E11"),
    **dict.fromkeys(("E45", "U55"), "U04"),
    "U56": "U12",
    **dict.fromkeys(("U14", "X33"), "U23"),
    "X35": "X34",
    **dict.fromkeys(("X20", "X23", "X25"), "X03"),
    # Runs, and whoever keeps them.
    **dict.fromkeys(("U48", "U49"), "U09"),
    **dict.fromkeys(("E04", "E05", "E36", "E37", "U18"), "U19"),
    "E47": "U25",
    **dict.fromkeys(("U51", "U52"), "U50"),
    "P09": "X05",
    "P11": "X06",
    # Engines and stores.
    **dict.fromkeys(("E14", "E20", "E24", "E25", "E31", "E41"), "E10"),
    "E26": "E17",
    **dict.fromkeys(("E21", "E22"), "E33"),
    **dict.fromkeys(("E32", "E35", "E43"), "E34"),
    **dict.fromkeys(("E40", "E42"), "E52"),
    # Traces, gradients, restarts.
    "P04": "P06",
    "X14": "X13",
    **dict.fromkeys(("F02", "F09"), "F01"),
    **dict.fromkeys(("F10", "F16"), "F06"),
    "F08": "F13",
}
"""A code that has gone -> the code that says it now."""
