"""The state of one trace, and its end."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from paceline.parts.plan.trace.user_frame import SourceLine, here

SCHEMA = "paceline.trace/1"


class TraceSession:
    """The one trace of this process.

    `device_type`: what the script finds, "cuda" (a stand-in) or "cpu". `device_count`: how many of them. `notes`: what was taken for
    granted, each once, with the user's line. `facts`: what the parts of the trace found out, one key each; `on_finish` adds the rest when
    the step is over.
    """

    def __init__(self, out: Path, *, device_type: str, world_size: int, device_count: int = 1) -> None:
        self.out = out
        self.device_type = device_type
        self.world_size = world_size
        self.device_count = device_count
        self.notes: dict[tuple[str, str | None, int | None], None] = {}
        self.facts: dict[str, Any] = {}
        self.on_finish: list[Callable[[], dict[str, Any]]] = []
        self.started = time.monotonic()

    def assume(self, what: str, *, place: SourceLine | None = None, anywhere: bool = False) -> None:
        """Note the assumption `what` with the user's line; `anywhere`: it belongs to no line."""
        place = None if anywhere else place or here()
        if place is not None and place.library:
            what = f"{what} (in {place.library})"
        if len(self.notes) < 200:
            self.notes[what, place.file if place else None, place.line if place else None] = None

    def finish(self) -> NoReturn:
        """Write the facts of the step and exit at once: no `finally` of the script runs after its first step."""
        for part in self.on_finish:
            self.facts |= part()
        self._leave({"outcome": "traced", **self.facts})

    def fail(
        self, code: str, what: str, *, place: SourceLine | None = None, saw: str = "", lacks: str = ""
    ) -> NoReturn:
        """Write why there is no trace, and exit. `lacks`: the package without which nothing can be traced."""
        at = {"file": place.file, "line": place.line, "text": place.text} if place else {}
        self._leave({"outcome": "failed", "code": code, "what": what, "saw": saw, "lacks": lacks, **at})

    def _leave(self, facts: dict[str, Any]) -> NoReturn:
        notes = [{"what": what, "file": file, "line": line} for what, file, line in self.notes]
        whole = {"schema": SCHEMA, **facts, "assumptions": notes, "trace_seconds": time.monotonic() - self.started}
        partial = self.out.with_suffix(".partial")
        partial.write_text(json.dumps(whole), encoding="utf-8")
        partial.rename(self.out)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
