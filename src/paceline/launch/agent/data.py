"""One host's data: the channels for its ranks, the files that the ranks leave, and the checkpoints that they write in between."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from paceline.contract import channels as channel_files
from paceline.contract.prepare import base_directory
from paceline.contract.tree import Tree
from paceline.errors import PacelineError, four_parts
from paceline.facts import Channel, Job
from paceline.launch.agent.host_attempt import HostIdentity
from paceline.launch.agent.transfer_client import Transfers
from paceline.launch.job.messages import (
    ClaimMessage,
    Failure,
    GatheredMessage,
    GatherMessage,
    Kind,
    Message,
    StartAttemptMessage,
)
from paceline.recording.layout import RunDirectory
from paceline.storage.files import has_files
from paceline.storage.urls import part_url, shown

LOOK_SECONDS = 5.0
TELL_SECONDS = 30.0
TELL_FRACTION = 0.05
# Archive -> the variable that tells the ranks the directory whose files go into the archive.
DIRECTORIES = {"model": "SM_MODEL_DIR", "output": "SM_OUTPUT_DATA_DIR"}


@dataclass(slots=True)
class HostData:
    """One host's part of the job's data: it fetches data before its ranks start, and sends data while they run and afterwards."""

    job: Job
    """The job as this host's command line describes it."""
    run_id: str
    """Id of the run."""
    host: str
    """Name of this host."""
    base: Path
    """The contract's tree."""
    kept: Path
    """The directory that keeps fetched channels from one run to the next."""
    environ: Mapping[str, str]
    """Environment variables of the process that transfers files."""
    event: Callable[..., None]
    """Records one event of this host."""
    uplink: Callable[[Message], None]
    """Sends a message to the coordinator."""
    _transfers: Transfers = field(init=False)
    _have: set[Path] = field(default_factory=set)
    _restored: bool = False
    _told: dict[str, tuple[float, float]] = field(default_factory=dict)
    _doing: str = "download"

    def __post_init__(self) -> None:
        self._transfers = self._new_transfers()

    def _new_transfers(self) -> Transfers:
        return Transfers(
            self.environ,
            progress=self._progress,
            claim=lambda claim: self.uplink(ClaimMessage(digests=claim["digests"])),
            finding=lambda parts: self.event("finding", severity="warning", **parts),
        )

    async def fetch(self, message: StartAttemptMessage) -> dict[str, Path]:
        """Fetch this host's share of each channel, and restore the checkpoints of an earlier run. Channel -> directory of the share.

        Raises:  UsageError E01, E51 to E53, U06, U22: a channel or a checkpoint could not be fetched
        """
        self._doing = "download"
        hosts = [placement.host for placement in sorted(message.placements, key=lambda placed: placed.node_rank)]
        speaks = message.attempt == 0 and hosts[0] == self.host
        fetched = {}
        for channel in self.job.contract.channels:
            if speaks and channel.input_mode != "File":
                self.event(
                    "notice",
                    text=f"channel {channel.name!r}: {channel.input_mode} is File here: all of it is fetched first",
                )
            if "://" in channel.source:
                fetched[channel.name] = await self._fetch_channel(channel, hosts, speaks)
        if self.job.checkpoint_url is not None and not self._restored:
            await self._restore(len(hosts) > 1)
        return fetched

    async def _fetch_channel(self, channel: Channel, hosts: list[str], speaks: bool) -> Path:
        place = self.kept / _folder(channel, hosts, self.host)
        if place in self._have:
            return place / "files"  # an earlier attempt of this job fetched the channel
        sharded = channel.distribution == channel_files.SHARDED_BY_KEY and len(hosts) > 1
        done = await self._ask(
            channel.name,
            "channel",
            name=channel.name,
            url=channel.source,
            data_type=channel.data_type,
            share={"hosts": hosts, "host": self.host} if sharded else None,
            files=str(place / "files"),
            records=str(place / "records"),
        )
        self._have.add(place)
        found = channel_files.unequal_shards(channel, [""] * done["keys"], hosts) if speaks else None
        if found is not None:
            parts = {"code": found.code, "what": found.what, "saw": found.saw, "next": found.next, "more": found.more}
            self.event("finding", severity=str(found.severity), **parts)
        return place / "files"

    async def _restore(self, shared: bool) -> None:
        directory = Tree(self.base).checkpoints
        await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
        await self._ask(
            "checkpoints",
            "restore",
            directory=str(directory),
            url=self.job.checkpoint_url,
            delete=self.job.checkpoints_delete,
            shared=shared,
        )
        self._restored = True

    async def watch(self) -> None:
        """From now on send new checkpoints as they appear."""
        if not self._restored:
            return
        try:
            await self._transfers.ask("watch", seconds=LOOK_SECONDS)
        except PacelineError as error:
            self.event("finding", severity="warning", **four_parts(error))

    def claimed(self, same: list[str], taken: dict[str, str]) -> None:
        """Pass on the coordinator's answer: which checkpoints are stored already, and which belong to other hosts."""
        self._transfers.claimed(same, taken)

    async def gather(self, message: GatherMessage, environment: Mapping[str, str] | None) -> GatheredMessage:
        """Send the last checkpoints and this host's part of each archive. A failure is reported, and the rest is sent all the same.

        `environment`: the variables of the ranks; None: none was started, and nothing is sent.
        """
        if environment is None:
            return GatheredMessage(kinds=[], errors=[])
        try:
            return await self._gather(message, environment)
        except Exception as error:
            # Whatever the error is, the coordinator waits for this host's answer.
            what = f"{self.host} could not send what its ranks left"
            saw = f"{type(error).__name__}: {error}"
            failure = Failure(code="E53", what=what, saw=saw, next=f"ls -la {self.base}")
            return GatheredMessage(kinds=[], errors=[failure])

    async def _gather(self, message: GatherMessage, environment: Mapping[str, str]) -> GatheredMessage:
        self._doing = "upload"
        sent: list[Kind] = []
        errors: list[dict[str, str]] = []
        if self._restored:
            await self._try(errors, "checkpoints", "flush")
        for kind in message.kinds:
            directory = Path(environment[DIRECTORIES[kind]])
            if not await asyncio.to_thread(has_files, directory):
                continue
            if self.job.output_url is None:
                errors.append(_no_output(self.host, kind))
                continue
            url = part_url(self.job.output_url, self.run_id, self.host, kind)
            order = {"directory": str(directory), "archive": str(self._archive(kind)), "url": url}
            doing = f"{self.host}'s part of {kind}.tar.gz could not be sent"
            if await self._try(errors, kind, "part", doing=doing, **order) is not None:
                sent.append(kind)
        return GatheredMessage(kinds=sent, errors=[msgspec.convert(error, Failure) for error in errors])

    async def archive(
        self,
        kind: str,
        url: str,
        parts: Mapping[str, str],
        environment: Mapping[str, str],
        errors: list[dict[str, str]],
    ) -> dict[str, Any] | None:
        """Make one archive of this host's files and the other hosts' parts, and send it; None: the archive would be empty, or it failed."""
        self._doing = "upload"
        directory = Path(environment[DIRECTORIES[kind]])
        if not parts and not await asyncio.to_thread(has_files, directory):
            return None
        doing = f"{kind}.tar.gz could not be sent"
        order = {"directory": str(directory), "archive": str(self._archive(kind)), "url": url, "parts": dict(parts)}
        return await self._try(errors, kind, "archive", doing=doing, **order)

    def give_up(self) -> None:
        """Abort all transfers at once. A later attempt starts again with the files that have arrived."""
        self._transfers.give_up()
        self._transfers, self._restored = self._new_transfers(), False

    def close(self) -> None:
        """Close the transfer process: no transfer is left."""
        self._transfers.close()

    def _archive(self, kind: str) -> Path:
        return self.base / ".transfer" / f"{kind}.tar.gz"

    async def _try(self, errors: list[dict[str, str]], name: str, do: str, /, **order: Any) -> dict[str, Any] | None:
        try:
            return await self._ask(name, do, **order)
        except PacelineError as error:
            errors.append(four_parts(error))
            return None

    async def _ask(self, name: str, do: str, /, **order: Any) -> dict[str, Any]:
        began = asyncio.get_running_loop().time()
        url = order.get("url") or self.job.checkpoint_url
        self._say("begun", what=name, url=shown(str(url)))
        done = await self._transfers.ask(do, **order)
        seconds = round(asyncio.get_running_loop().time() - began, 3)
        self._say("done", what=name, url=shown(str(url)), seconds=seconds, **_counts(done))
        return done

    def _progress(self, progress: dict[str, Any]) -> None:
        """Report the progress after every further 5 %, and every half minute."""
        now = asyncio.get_running_loop().time()
        fraction = progress["done_bytes"] / progress["total_bytes"] if progress["total_bytes"] else 0.0
        told, last = self._told.get(progress["name"], (-TELL_SECONDS, -1.0))
        if progress["done_files"] == progress["total_files"]:
            return  # the end has an event of its own
        if fraction - last >= TELL_FRACTION or fraction < last or now - told >= TELL_SECONDS:
            self._told[progress["name"]] = (now, fraction)
            self._say("moving", what=progress["name"], **_counts(progress))

    def _say(self, state: str, **fields: Any) -> None:
        self.event("transfer", state=state, direction=self._doing, **fields)


def _no_output(host: str, kind: Kind) -> dict[str, str]:
    return {
        "code": "E53",
        "what": f"{host}'s part of {kind}.tar.gz was not sent: it was started without --output",
        "saw": "the first host was started with one",
        "next": "give every host the same --output",
    }


def _counts(progress: Mapping[str, Any]) -> dict[str, Any]:
    names = ("done_bytes", "total_bytes", "done_files", "total_files", "skipped_files", "files", "bytes")
    return {name: progress[name] for name in names if name in progress}


def _folder(channel: Channel, hosts: list[str], host: str) -> str:
    """The folder's name for a share of a channel: another URL, or another share of it, has another folder."""
    share = f"{hosts.index(host)} of {len(hosts)}" if channel.distribution == channel_files.SHARDED_BY_KEY else "all"
    what = "\n".join((channel.source, channel.data_type, share))
    return f"{channel.name}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def host_data(
    job: Job,
    identity: HostIdentity,
    directory: RunDirectory,
    event: Callable[..., None],
    uplink: Callable[[Message], None],
) -> HostData:
    """The data of a host: in its own part of the recording where the user names no other place."""
    base = base_directory(
        job.contract,
        below=directory.host(identity.name) / "ml",
        host=identity.name,
        several_here=identity.shares_machine,
    )
    kept = kept_root(job, base, directory.path.parent)
    return HostData(job, identity.run_id, identity.name, base, kept, identity.environ, event, uplink)


def kept_root(job: Job, base: Path, runs_root: Path) -> Path:
    """The directory for fetched channels, which outlive a run: in the contract's tree if the user keeps it, else beside the recordings."""
    if job.contract.opt_ml or job.contract.base_dir is not None:
        return base / "input" / ".fetched"
    root = runs_root.absolute()
    return root.parent / "data" if root.name == "runs" else root / ".data"
