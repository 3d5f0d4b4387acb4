"""What can go wrong with another rank in the middle of an exchange. Nothing here imports torch."""


class PeerLost(RuntimeError):
    """A rank has ended in the middle of an exchange. `rank`: its number in the script; None if it is not known."""

    def __init__(self, rank: int | None, text: str) -> None:
        super().__init__(text)
        self.rank = rank


class PeerLate(RuntimeError):
    """A rank is alive but did not take part in time. `rank`: its number, as in messages."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(text)
        self.rank = rank
