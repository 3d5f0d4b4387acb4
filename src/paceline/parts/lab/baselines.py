"""Results of `paceline bench` that later ones are compared with: one small file for each question, in this user's state directory."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.recording.runs import read_document
from paceline.recording.writer import write_json
from paceline.user_folders import user_state_folder

SCHEMA = "paceline.bench.baseline/1"


def baselines_folder() -> Path:
    """The directory of the results, beside the index of runs. A result belongs to one user and the machines that it names."""
    return user_state_folder() / "bench"


def baseline_file(key: Mapping[str, Any], folder: Path | None = None) -> Path:
    """The file of one question; the same key gives the same file."""
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    words = re.sub(r"[^\w.-]+", "-", str(key.get("what", "bench")))[:40]
    return (folder or baselines_folder()) / f"{words}-{digest}.json"


def read_results(key: Mapping[str, Any], folder: Path | None = None) -> list[dict[str, Any]]:
    """The kept results of this question, oldest first; none if the file is missing or is about another question."""
    document = read_document(baseline_file(key, folder))
    if document.get("schema") != SCHEMA or document.get("key") != dict(key):
        return []
    results = document.get("results")
    return [one for one in results if isinstance(one, dict)] if isinstance(results, list) else []


def write_results(key: Mapping[str, Any], results: Sequence[Mapping[str, Any]], folder: Path | None = None) -> Path:
    """Replace the kept results of this question.

    Raises:  OSError: the disk refused it
    """
    path = baseline_file(key, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"schema": SCHEMA, "key": dict(key), "results": [dict(one) for one in results]})
    return path
