"""The coordinator's part of a job's data: it decides which host owns each checkpoint, and makes one archive of every host's files."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from paceline.facts import Job, SecondaryStatus, Status
from paceline.launch.agent.agent import HostAgent
from paceline.launch.job.framed_connection import Connection
from paceline.launch.job.messages import ClaimedMessage, ClaimMessage, GatheredMessage, GatherMessage, KillMessage, Kind
from paceline.launch.job.outcome import Outcome
from paceline.storage.ownership import OwnershipLedger
from paceline.storage.urls import below, part_url, shown

POLL_SECONDS = 0.05


@dataclass(slots=True)
class ArtifactCollector:
    """The coordinator's part of the job's data."""

    job: Job
    """The job as the first host's command line describes it."""
    run_id: str
    """Id of the run."""
    local: HostAgent
    """The first host's ranks."""
    peers: Mapping[str, Connection]
    """Host -> connection, for the other hosts that are connected now."""
    placed: Callable[[], Collection[str]]
    """Returns the hosts of the newest attempt that have been connected since it started."""
    record: Callable[..., None]
    """Writes one event to the recording."""
    ledger: OwnershipLedger = field(default_factory=OwnershipLedger)
    """Which host owns each checkpoint file."""
    asked_for: frozenset[Kind] | None = None
    """Kinds of archives that every host was asked for after the ranks' end; None: no host was asked yet."""
    gathered: dict[str, GatheredMessage] = field(default_factory=dict)
    """Host -> its answer."""
    _sending: bool = False
    _given_up: bool = False

    def claim(self, host: str, message: ClaimMessage) -> None:
        """Tell a host which of the checkpoint files it may send."""
        answer = self.ledger.claim(host, message.digests)
        if host in self.peers:
            self.peers[host].send(ClaimedMessage(same=sorted(answer.same), taken=dict(answer.taken)))
        elif host == self.local.identity.name:
            self.local.data.claimed(sorted(answer.same), dict(answer.taken))

    def take(self, host: str, message: GatheredMessage) -> None:
        """Note one host's report of what it has sent after the ranks' end."""
        self.gathered[host] = message

    def asked_to_end(self, reason: str, *, now: bool) -> None:
        """A stop request during upload. With `now`, abandon the upload."""
        if not self._sending or self._given_up:
            return
        if not now:
            text = (
                f"{reason}: what the job left is being sent; a second Ctrl-C or `paceline stop --now` ends without it"
            )
            self.record("notice", text=text)
            return
        self._given_up = True
        for link in self.peers.values():
            link.send(KillMessage(reason="the job ends at once"))
        self.local.kill()

    async def end(self, outcome: Outcome) -> Outcome:
        """After the ranks' end: send the last checkpoints, model.tar.gz (unless the job failed) and output.tar.gz.

        Holds:   a job that did not complete keeps its outcome; a completed job whose artefacts could not be sent ends with 1
        """
        if self.job.output_url is None and self.job.checkpoint_url is None:
            return outcome
        well = outcome.status is Status.COMPLETED
        status = Status.IN_PROGRESS if outcome.status is not Status.STOPPED else Status.STOPPING
        self.record("status", status=str(status), secondary_status=str(SecondaryStatus.UPLOADING))
        kinds: list[Kind] = ["output"] if outcome.status is Status.FAILED else ["model", "output"]
        self._sending = True
        errors = await self._gather(kinds)
        self._say_clashes()
        if self.job.output_url is not None:
            errors += await self._archive(kinds)
        if self._given_up:
            errors = [_given_up()]
        self._sending = False
        for error in errors:
            self.record("finding", host=self.local.identity.name, severity="error", **error)
        if not errors or not well:
            return outcome
        reason = f"every rank ended with 0, and what the job left could not be sent: {errors[0]['what']}"
        return replace(
            outcome, exit_code=1, status=Status.FAILED, secondary_status=SecondaryStatus.FAILED, reason=reason
        )

    async def _gather(self, kinds: list[Kind]) -> list[dict[str, str]]:
        """Ask every host of the attempt for its part, and wait until each host has answered or has left."""
        self.asked_for = frozenset(kinds if self.job.output_url is not None else ())
        asked = set(self.placed()) & set(self.peers)
        for host in asked:
            self.peers[host].send(GatherMessage(kinds=sorted(self.asked_for)))
        name = self.local.identity.name
        # This host sends no part: its own files go directly into the archive.
        self.local.gather(GatherMessage(kinds=[]))
        while not self._given_up and any(
            host not in self.gathered and (host == name or host in self.peers) for host in (*asked, name)
        ):
            await asyncio.sleep(POLL_SECONDS)
        errors = [msgspec.to_builtins(error) for message in self.gathered.values() for error in message.errors]
        for host in sorted(asked - set(self.gathered)):
            errors.append(_lost(host))
        return errors

    async def _archive(self, kinds: list[Kind]) -> list[dict[str, str]]:
        errors: list[dict[str, str]] = []
        prepared = self.local.prepared
        for kind in kinds if prepared is not None else ():
            assert prepared is not None and self.job.output_url is not None
            if self._given_up:
                break
            url = below(self.job.output_url, self.run_id, "output", f"{kind}.tar.gz")
            parts = {
                host: part_url(self.job.output_url, self.run_id, host, kind)
                for host, said in sorted(self.gathered.items())
                if kind in said.kinds
            }
            done = await self.local.data.archive(kind, url, parts, prepared.environment, errors)
            if done is not None:
                self._say_kept_twice(kind, done["clashes"])
        return errors

    def _say_clashes(self) -> None:
        for name, (owner, others) in sorted(self.ledger.clashes().items()):
            self._finding(
                f"checkpoint {name} was written by {owner} and by {_listed(others)}, with different content",
                f"below {shown(str(self.job.checkpoint_url))} lies the one of {owner}; the others were not sent",
                "write it on rank 0 alone, or put the rank into its name",
            )

    def _say_kept_twice(self, kind: str, clashes: Mapping[str, list[str]]) -> None:
        for name, hosts in sorted(clashes.items()):
            self._finding(
                f"{name} of {kind}.tar.gz was left by {self.local.identity.name} and by {_listed(hosts)}, with different content",
                f"in the archive: {name}, {', '.join(f'{host}/{name}' for host in hosts)}",
                "write it on rank 0 alone, or put the rank into its name",
            )

    def _finding(self, what: str, saw: str, next: str) -> None:
        host = self.local.identity.name
        self.record("finding", host=host, code="E54", severity="warning", what=what, saw=saw, next=next)


def _listed(hosts: list[str]) -> str:
    return hosts[0] if len(hosts) == 1 else f"{', '.join(hosts[:-1])} and {hosts[-1]}"


def _given_up() -> dict[str, str]:
    what = "what the job left was not sent: somebody asked for an end at once"
    return {"code": "E53", "what": what, "saw": "files that were sent before are there", "next": "paceline why"}


def _lost(host: str) -> dict[str, Any]:
    what = f"{host} was lost while it sent what the job left there"
    return {"code": "E53", "what": what, "saw": "its connection ended", "next": f"paceline logs --host {host}"}
