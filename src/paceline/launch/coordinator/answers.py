"""What hosts answer to one request of the first agent, gathered until all have or the time is up."""

import asyncio
from collections.abc import Collection

from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.diagnosis.snapshots import HostSnapshot, RankSnapshot
from paceline.launch.job.messages import LookReply, TraceReply


class HostAnswers:
    """Of each host only what it says of itself counts."""

    def __init__(self, hosts: Collection[str]) -> None:
        self._missing = set(hosts)
        self._all = asyncio.Event()
        self.looks: list[RankSnapshot] = []
        self.hosts: list[HostSnapshot] = []
        self.traces: dict[str, dict[int, list[TraceEntry]]] = {}
        if not self._missing:
            self._all.set()

    def add(self, host: str, reply: LookReply | TraceReply) -> None:
        """Take one host's answer."""
        if isinstance(reply, TraceReply):
            self.traces[host] = reply.traces
        else:
            self.looks += [look for look in reply.looks if look.host == host]
            self.hosts += [look for look in reply.hosts if look.host == host]
        self._missing.discard(host)
        if not self._missing:
            self._all.set()

    async def wait(self, seconds: float) -> None:
        """Return when every host has answered, and no later than this."""
        try:
            await asyncio.wait_for(self._all.wait(), seconds)
        except TimeoutError:
            return
