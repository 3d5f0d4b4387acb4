"""Outcomes of trials, kept outside the clone by what they measured: one code, one gallery, one torch."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from scoring import Outcome


def folder() -> Path:
    """Where results are kept: $PACELINE_FAULTS, else below the user's cache."""
    return Path(os.environ.get("PACELINE_FAULTS") or Path.home() / ".cache" / "paceline-faults")


def key_of(repository: Path) -> str:
    """A hash of paceline's code and of the scripts that it is tried on: whatever else a commit changes, the trials made so far hold.

    Holds:   the same files with the same contents, wherever the clone lies -> the same key
    """
    digest = hashlib.sha256()
    for path in _files(repository, ("src", "examples/broken")):
        name, content = path.relative_to(repository).as_posix().encode(), path.read_bytes()
        digest.update(b"%d %s %d " % (len(name), name, len(content)) + content)
    return digest.hexdigest()[:12]


def _files(repository: Path, names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        for path in sorted((repository / name).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md":
                yield path


def results_of(key: str, torch: str) -> "Results":
    return Results(folder() / f"{key}-{torch}.jsonl")


def by_torch(key: str) -> dict[str, list[Outcome]]:
    """Every outcome of one key that is there, by the version of torch, the oldest first; of one version, gloo's before NCCL's."""
    files = {path.stem.removeprefix(f"{key}-"): path for path in folder().glob(f"{key}-*.jsonl")}
    return {
        version: Results(files[version]).all() for version in sorted(files, key=lambda text: (in_order(text), text))
    }


def in_order(version: str) -> tuple[int, ...]:
    """A version as numbers: 2.10.0 comes after 2.8.0."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


class Results:
    """The outcomes of one key and torch in a file, one JSON line each, as they came. A cut last line is as if it had not come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def all(self) -> list[Outcome]:
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        return [outcome for text in lines if (outcome := outcome_of(text)) is not None]

    def append(self, outcome: Outcome) -> None:
        with self.path.open("ab") as file:
            if file.tell() and not self.path.read_bytes().endswith(b"\n"):
                file.write(b"\n")
            file.write(json.dumps(outcome.to_plain()).encode() + b"\n")

    def has(self, kind: str, name: str, number: int) -> bool:
        return any((o.kind, o.name, o.number) == (kind, name, number) for o in self.all())

    def keep(self, directory: Path, outcome: Outcome) -> None:
        """The job's directory, for whoever wants to know why the answer was wrong."""
        kept = self.path.with_suffix("") / f"{outcome.kind}-{outcome.name}-{outcome.number}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(directory, kept, symlinks=True, ignore_dangling_symlinks=True)


def outcome_of(text: str) -> Outcome | None:
    """One line of a results file."""
    try:
        plain = json.loads(text)
    except ValueError:
        return None
    return Outcome(**{name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()})
