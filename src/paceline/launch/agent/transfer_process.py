"""Transfers files for an agent, in a separate process: `python -P -m paceline.launch.agent.transfer_process`.

Orders come on stdin and answers go to stdout. Both are lines of JSON, and one order is in progress at a time. The end of stdin ends the
process at once: the agent has died or has aborted the order. This process loads a store's library and may wait for a network that does
not answer. An agent must never do either.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.contract.channels import shares
from paceline.errors import PacelineError, four_parts
from paceline.storage import upload
from paceline.storage.checkpoints import CheckpointSync, place_of
from paceline.storage.download import DownloadTarget, Progress, fetch, install, nobody_asks
from paceline.storage.errors import told
from paceline.storage.listing import Listing, check, check_writable, listing
from paceline.storage.ownership import ClaimResult

Order = Mapping[str, Any]


@dataclass(slots=True)
class TransferProgram:
    """Carries out the agent's orders, one after the other."""

    answer: Callable[[Mapping[str, Any]], None]
    """Writes one line for the agent."""
    orders: queue.Queue[Order] = field(default_factory=queue.Queue)
    """Waiting orders, the oldest first."""
    claimed: queue.Queue[Order] = field(default_factory=queue.Queue)
    """The agent's answers to claims."""
    _sync: CheckpointSync | None = None
    _look_seconds: float | None = None
    _said: set[str] = field(default_factory=set)

    def serve(self) -> None:
        """Carry out orders forever, and send new checkpoints between them."""
        while True:
            try:
                order = self.orders.get(timeout=self._look_seconds)
            except queue.Empty:
                self._look()
                continue
            try:
                self.answer({"done": self._carry_out(order)})
            except PacelineError as error:
                self.answer({"error": four_parts(error)})

    def _carry_out(self, order: Order) -> dict[str, Any]:
        match order["do"]:
            case "check":
                return self._check(order)
            case "channel":
                return self._channel(order)
            case "restore":
                return self._restore(order)
            case "watch":
                self._look_seconds = float(order["seconds"])
                return {}
            case "flush":
                self._look_seconds = None
                sent = self._sync.look(self._progress("checkpoints"), final=True) if self._sync is not None else 0
                return {"files": sent}
            case "part":
                return self._part(order)
            case _:
                return self._archive(order)

    def _check(self, order: Order) -> dict[str, Any]:
        for source in order["sources"]:
            check(source["url"], source["doing"], source["data_type"])
        for target in order["targets"]:
            check_writable(target["url"], target["doing"])
        return {}

    def _channel(self, order: Order) -> dict[str, Any]:
        """Fetch this host's share of a channel. The answer has the number of keys of the whole channel."""
        doing = f"channel {order['name']!r} could not be fetched"
        found = listing(order["url"], doing, order["data_type"])
        keys = [item.key for item in found.items]
        items = found.items
        if order["share"] is not None:
            mine = set(shares(keys, order["share"]["hosts"])[order["share"]["host"]])
            items = tuple(item for item in items if item.key in mine)
        place = DownloadTarget(Path(order["files"]), Path(order["records"]))
        progress = self._progress(order["name"])
        install(Listing(found.store, items), place, order["url"], doing, progress)
        return {"keys": len(keys), **_moved(progress)}

    def _restore(self, order: Order) -> dict[str, Any]:
        self._sync = CheckpointSync(
            place_of(Path(order["directory"])),
            order["url"],
            delete=order["delete"],
            shared=order["shared"],
            claim=self._claim,
        )
        progress = self._progress("checkpoints")
        self._sync.restore(progress)
        return _moved(progress)

    def _claim(self, digests: Mapping[str, str]) -> ClaimResult:
        self.answer({"claim": {"digests": dict(digests)}})
        answer = self.claimed.get()
        return ClaimResult(frozenset(answer["same"]), answer["taken"])

    def _look(self) -> None:
        """Send the checkpoints that are due. If a store does not answer, report it once and try again the next time."""
        assert self._sync is not None
        try:
            self._sync.look(Progress(nobody_asks))
        except PacelineError as error:
            if error.what not in self._said:
                self._said.add(error.what)
                self.answer({"finding": four_parts(error)})

    def _part(self, order: Order) -> dict[str, Any]:
        """Send this host's part of the archive that the first host makes."""
        archive = Path(order["archive"])
        packed = self._pack(order, archive, ())
        upload.send(archive, order["url"], order["doing"], self._progress(archive.name))
        archive.unlink()
        return {"files": packed.file_count}

    def _archive(self, order: Order) -> dict[str, Any]:
        archive = Path(order["archive"])
        parts = []
        for host, url in order["parts"].items():
            local = archive.with_name(f"{host}.{archive.name}")
            fetch(url, local, order["doing"])
            parts.append(upload.HostArchive(host=host, archive=local))
        packed = self._pack(order, archive, parts)
        progress = self._progress(archive.name)
        upload.send(archive, order["url"], order["doing"], progress)
        archive.unlink()
        for part in parts:
            part.archive.unlink()
            with told(order["doing"], order["parts"][part.host]):
                upload.remove(order["parts"][part.host])
        return {"files": packed.file_count, "bytes": progress.total_bytes, "clashes": packed.clashes}

    def _pack(self, order: Order, archive: Path, parts: Any) -> upload.Packed:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with told(order["doing"], f"file://{archive}"):
            try:
                return upload.pack(Path(order["directory"]), archive, parts)
            except BaseException:
                archive.unlink(missing_ok=True)
                raise

    def _progress(self, name: str) -> Progress:
        def tell(progress: Progress) -> None:
            self.answer({"progress": {"name": name, **_moved(progress)}})

        return Progress(tell)


def _moved(progress: Progress) -> dict[str, int]:
    return {
        "done_bytes": progress.done_bytes,
        "total_bytes": progress.total_bytes,
        "done_files": progress.done_files,
        "total_files": progress.total_files,
        "skipped_files": progress.skipped_files,
    }


def main() -> None:
    """Serve the agent at the other end of stdin and stdout."""
    # Output of a library must not come between the answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    writing = threading.Lock()

    def answer(value: Mapping[str, Any]) -> None:
        try:
            with writing:
                out.write(json.dumps(value) + "\n")
                out.flush()
        except OSError:
            os._exit(1)

    program = TransferProgram(answer)

    def read() -> None:
        for line in sys.stdin:
            order = json.loads(line)
            (program.claimed if "same" in order else program.orders).put(order)
        # Threads may be waiting for a network that does not answer. The process must not wait for them.
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    try:
        program.serve()
    except Exception as error:
        answer(
            {
                "error": {
                    "code": "E53",
                    "what": "files could not be moved",
                    "saw": f"{type(error).__name__}: {error}",
                    "next": "df -h",
                }
            }
        )
        os._exit(1)


if __name__ == "__main__":
    main()
