"""Starts the ranks of one measurement with `paceline run`, and reads their answers line by line while they measure."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.errors import NotEnoughEvidence, UsageError
from paceline.parts.lab.cli.bench.question import PROGRAM, BenchQuestion
from paceline.parts.lab.nccl_tests import BenchRow, BenchWorld, Skipped, row_of, world_of
from paceline.parts.lab.short_run import LOOK_SECONDS, RunProcess, next_command, started, why_it_failed
from paceline.parts.lab.slow_pairs import Pair
from paceline.recording.runs import runs_root
from paceline.spelling import nearest

# The environment variable with rank 0's answer file. parts/lab/worker/bench_group.py has the same name; only a rank imports that module.
OUT = "PACELINE_BENCH_OUT"
_ANSWERS = "answers.jsonl"


@dataclass(slots=True, kw_only=True)
class BenchOutput:
    """The ranks' answers so far."""

    world: BenchWorld | None = None
    """The ranks that measure; None: the ranks did not join, or rank 0 is on another host."""
    rows: list[BenchRow] = field(default_factory=list)
    """One row for each size, type, reduction and root."""
    pairs: list[Pair] = field(default_factory=list)
    """The measured pairs of hosts, or of ranks of one host."""
    left: list[Skipped] = field(default_factory=list)
    """The cases that were not measured, and why."""
    refused: dict[str, str] | None = None
    """Why the backend cannot be used (kind and text); None if it can be used."""
    ended: bool = False
    """Whether the ranks have given their last answer."""


def measure(
    question: BenchQuestion,
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    on_answer: Callable[[str, BenchOutput], None] = lambda kind, found: None,
    tell: Callable[[str], None] = lambda line: None,
) -> BenchOutput:
    """Start the ranks and wait for their last answer. `on_answer` is called for each answer: "world", "row", "pair", "left".

    Raises:  UsageError X03: the backend is missing, or supports none of it; NotEnoughEvidence X05: the ranks ended before their answer
             KeyboardInterrupt, SystemExit: the user ended it; the ranks have ended too
    """
    folder = new_folder(environ)
    answers = folder / _ANSWERS
    found, lines = BenchOutput(), _Lines(answers)
    program = ("-m", PROGRAM, json.dumps(question.plain(), separators=(",", ":")))
    environment = {**environ, OUT: str(answers)}
    with started((*argv, *program), folder / "ranks", environment) as child:
        alive = True
        while alive:
            alive = child.alive(LOOK_SECONDS)
            for record in lines.new():
                kind = _take(found, record)
                if kind == "world":
                    _pass_on(child, tell)
                on_answer(kind, found)
    if found.refused is not None:
        shutil.rmtree(folder, ignore_errors=True)
        raise _refusal(found.refused, question)
    if child.code != 0:
        raise _unfinished(found, child, argv)
    shutil.rmtree(folder, ignore_errors=True)
    if found.ended and not found.rows and not found.pairs:
        why = found.left[-1].reason if found.left else "nothing was measured"
        raise UsageError(
            "X03",
            f"{found.world.backend if found.world else question.backend} cannot do this {question.collective}",
            saw=why,
            next="--backend gloo",
        )
    return found


def new_folder(environ: Mapping[str, str], prefix: str = "b") -> Path:
    """An empty folder for one measurement, beside the folder of runs, ignored by version control.

    Raises:  UsageError U22: the folder cannot be written
    """
    root = runs_root(environ=environ).parent.resolve()
    folder = root / "bench" / f"{prefix}-{os.urandom(3).hex()}"
    try:
        folder.mkdir(mode=0o700, parents=True)
        if root.name == ".paceline" and not (root / ".gitignore").exists():
            (root / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            "U22",
            "the bench has nowhere to write",
            saw=f"{error.filename or folder}: {error.strerror}",
            next="PACELINE_HOME=/a/directory/with/room paceline bench ...",
        ) from error
    return folder


class _Lines:
    """Reads complete lines from a growing file."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def new(self) -> list[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


def _take(found: BenchOutput, record: Mapping[str, Any]) -> str:
    """Add one answer to `found` and return its kind."""
    kind = next(iter(record))
    value = record[kind]
    if kind == "world":
        found.world = world_of(value)
    elif kind == "row":
        found.rows.append(row_of(value))
    elif kind == "pair":
        found.pairs.append(Pair(**value))
    elif kind == "left":
        found.left.append(Skipped(**value))
    elif kind == "refused":
        found.refused = value
    elif kind == "end":
        found.ended = True
    return kind


def _pass_on(child: RunProcess, tell: Callable[[str], None]) -> None:
    """Print the output of `paceline run` before its ranks joined, such as what an emulated network delivers, without the run's name."""
    for line in child.lines():
        if line.startswith("paceline  ") and not line.startswith("paceline  run r-"):
            tell(line)


def _refusal(refused: Mapping[str, str], question: BenchQuestion) -> UsageError:
    if refused["kind"] == "ranks":
        return UsageError("U05", refused["text"], saw="1 rank", next="--nproc-per-node 2")
    names = refused["text"].rpartition(" knows ")[2].split(", ") if " knows " in refused["text"] else []
    near = nearest((question.backend or "").lower(), names)
    return UsageError(
        "X03",
        f"the backend {question.backend or 'of this machine'} is not there",
        saw=refused["text"],
        next=f"--backend {near or 'gloo'}",
    )


def _unfinished(found: BenchOutput, child: RunProcess, argv: Sequence[str]) -> NotEnoughEvidence:
    done = len(found.rows) or len(found.pairs)
    before = f"; {done} figures were measured before" if done else ""
    return NotEnoughEvidence(
        "X05",
        "the ranks ended before their last answer",
        saw=why_it_failed(child) + before,
        next=next_command(child, argv),
    )
