"""What was a verb and is an option of another one now: the whole command line that does the same."""

from collections.abc import Sequence

_VERBS = {
    "prune": ("ps", "--prune"),
    "explain": ("help",),
    "instances": ("plan", "--instances"),
    "rehearse": ("bench", "--rehearse"),
}
"""A former verb -> the words that stand in its place."""


def moved(verb: str, words: Sequence[str]) -> list[str]:
    """The command line, without `paceline`, in place of the former verb with these words; []: it never was a verb.

    Holds:   moved("prune", ["--keep", "2"]) -> ["ps", "--prune", "--keep", "2"]
    """
    return [*_VERBS[verb], *words] if verb in _VERBS else []
