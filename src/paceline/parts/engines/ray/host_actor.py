"""The actor that answers for one host before a job runs. Ray sends it to the node by value, with the text of the remote program."""

from typing import Any


class HostActor:
    """The remote program (ssh/remote.py) on a node of the cluster."""

    def __init__(self, source: bytes) -> None:
        self._program: dict[str, Any] = {"__name__": "remote_program"}
        exec(compile(source, "remote_program", "exec"), self._program)

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The program's answer to one request."""
        answer: dict[str, Any] = self._program["answer"](asked)
        return answer
