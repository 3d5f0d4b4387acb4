"""The exceptions that paceline raises on purpose, in one class hierarchy, each with its exit code.

An error has the four parts of a finding: what happened, what was seen, what to do next, where to read more. Only `cli` prints one; a
traceback of Python has the parts as notes, and a notebook shows them alone.
"""

__all__ = ["HostLost", "NotEnoughEvidence", "PacelineError", "RankNeverArrived", "UsageError"]


class PacelineError(Exception):
    """paceline refuses something or could not do it. The error has four parts.

    `code` is the page that `paceline help` prints; `next` is one command or one edit.
    """

    exit_code = 1

    def __init__(self, code: str, what: str, *, saw: str = "", next: str = "", more: str = "") -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.saw = saw
        self.next = next
        self.more = more or f"paceline help {code}"
        for name, text in (("saw", saw), ("next", next), ("more", f"[{code}] {self.more}")):
            if text:
                self.add_note(f"  {name:<8}  {text}")

    def _render_traceback_(self) -> list[str]:
        """IPython shows these lines in place of the frames, which are paceline's own."""
        return [f"error[{self.code}]: {self.what}", *self.__notes__]


class UsageError(PacelineError):
    """The command line, a file or the machine makes the run impossible. Nothing was started."""

    exit_code = 2


class NotEnoughEvidence(PacelineError):
    """A recording exists, but not the part that the question needs."""

    exit_code = 3


class HostLost(PacelineError):
    """A host or its agent has failed."""

    exit_code = 200


class RankNeverArrived(PacelineError):
    """A rank or a host that the job needs did not arrive within the join timeout."""

    exit_code = 201


def four_parts(error: PacelineError) -> dict[str, str]:
    """The parts of an error that a message to another process has."""
    return {"code": error.code, "what": error.what, "saw": error.saw, "next": error.next}
