"""Words that a text must hold before a pattern can match: a word is found far quicker. Pure."""

import re

_SHORTEST = 3
_OPTIONAL = re.compile(r"[?*]|\{0?,")
_QUANTIFIER = re.compile(r"[?*+]|\{\d*(?:,\d*)?\}")


def needed_words(pattern: str) -> tuple[str, ...]:
    """One word of each alternative of a pattern; () where an alternative has none, and the pattern has to be tried.

    Holds:   pattern matches in text and needed_words(pattern) -> any(word in text for word in needed_words(pattern))
    """
    words = [max(_runs(alternative), key=len, default="") for alternative in _alternatives(pattern)]
    return tuple(words) if all(len(word) >= _SHORTEST for word in words) else ()


def _alternatives(pattern: str) -> list[str]:
    parts, begin, at = [], 0, 0
    while at < len(pattern):
        if pattern[at] == "|":
            parts.append(pattern[begin:at])
            begin = at + 1
        at = _after(pattern, at)
    return [*parts, pattern[begin:]]


def _runs(alternative: str) -> list[str]:
    """Characters that stand one after another in every match: groups and classes end a run, and so does what may be missing."""
    runs, run, at = [], "", 0
    while at < len(alternative):
        end = _after(alternative, at)
        atom = alternative[at:end]
        repeated = _QUANTIFIER.match(alternative, end)
        literal = atom[-1] if _is_literal(atom) else ""
        if repeated is None and literal:
            run += literal
        else:
            needed = literal if repeated is not None and not _OPTIONAL.match(repeated[0]) else ""
            runs.append(run + needed)
            run = ""
        at = repeated.end() if repeated is not None else end
    return [*runs, run]


def _is_literal(atom: str) -> bool:
    if atom[0] == "\\":
        return not atom[1].isalnum()
    return atom[0] not in "([.^$"


def _after(pattern: str, at: int) -> int:
    """Where the next atom begins: behind one character, one escape, one class, or a group with all that is in it."""
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] == "[":
        end = pattern.index("]", at + (3 if pattern[at + 1] == "^" else 2))
        return end + 1
    if pattern[at] != "(":
        return at + 1
    at += 1
    while pattern[at] != ")":
        at = _after(pattern, at)
    return at + 1
