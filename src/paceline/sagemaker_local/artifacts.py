"""What a job leaves: model.tar.gz and output.tar.gz from the trees of all its hosts, and checkpoints while it runs."""

import filecmp
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.sagemaker_local.objects import Objects, inside, joined
from paceline.sagemaker_local.opt_ml import HostDir
from paceline.sagemaker_local.validation import CHECKPOINTS


def combined(directories: Iterable[tuple[str, Path]]) -> tuple[dict[str, Path], list[str]]:
    """One tree out of the hosts' directories: name -> file, and a line for each name under which two hosts left different files.

    The first host keeps the name; another one's file is kept beside it as NAME.HOST.

    Holds:   no file is lost
    """
    files: dict[str, Path] = {}
    clashes = []
    for host, directory in directories:
        for path in sorted(file for file in directory.rglob("*") if file.is_file()):
            name = str(path.relative_to(directory))
            if name not in files:
                files[name] = path
            elif not filecmp.cmp(files[name], path, shallow=False):
                files[f"{name}.{host}"] = path
                clashes.append(f"{name} of {host} differs from the first host's and was kept as {name}.{host}")
    return files, clashes


def pack(files: Mapping[str, Path], archive: Path) -> None:
    """A gzipped tar of these files, links followed."""
    with tarfile.open(archive, "w:gz", dereference=True) as file:
        for name, path in files.items():
            file.add(path, arcname=name, recursive=False)


def upload(
    request: Mapping[str, Any],
    name: str,
    all_places: Sequence[HostDir],
    directory: Path,
    objects: Objects,
    *,
    with_model: bool,
) -> tuple[str | None, list[str]]:
    """Put what the job left below its output path: the URL of its model (None without one), and lines for the log.

    Raises:  TransferFailed
    """
    output = request["OutputDataConfig"]
    base = joined(output["S3OutputPath"], name, "output")
    plain = output.get("CompressionType") == "NONE"
    results, clashes = combined((place.name, place.tree.output_data) for place in all_places)
    if results:
        _put(results, "output", base, directory, objects, plain=plain)
    if not with_model:
        return None, clashes
    model, model_clashes = combined((place.name, place.tree.model) for place in all_places)
    return _put(model, "model", base, directory, objects, plain=plain), [*clashes, *model_clashes]


def _put(files: Mapping[str, Path], kind: str, base: str, directory: Path, objects: Objects, *, plain: bool) -> str:
    if plain:
        for name, path in files.items():
            objects.put(path, joined(base, kind, name))
        return f"{joined(base, kind)}/"
    archive = directory / f"{kind}.tar.gz"
    pack(files, archive)
    url = joined(base, archive.name)
    objects.put(archive, url)
    return url


class Checkpoints:
    """The checkpoint directory of every host, fetched at the start and copied to its URL whenever a file has changed.

    All hosts share one prefix, as in SageMaker. Deletions are not copied.
    """

    def __init__(self, request: Mapping[str, Any], all_places: Sequence[HostDir], objects: Objects) -> None:
        config = request.get("CheckpointConfig", {})
        self._url: str = config.get("S3Uri", "")
        below = Path(config.get("LocalPath", CHECKPOINTS)).relative_to("/opt/ml")
        self._directories = [place.tree.base / below for place in all_places]
        self._objects = objects
        self._known: dict[Path, tuple[int, int]] = {}
        self._sent_from: dict[str, Path] = {}

    def fetch(self, going_on: Callable[[], bool]) -> None:
        """What an earlier job left, into every host's directory.

        Raises:  TransferFailed
        """
        if not self._url:
            return
        for directory in self._directories:
            directory.mkdir(parents=True, exist_ok=True)
            for one in self._objects.below(f"{self._url.rstrip('/')}/"):
                if going_on():
                    target = inside(directory, one.key)
                    self._objects.fetch(one.url, target)
                    self._known[target] = _print(target)

    def send(self) -> list[str]:
        """Copy every file that is new or changed since the last time; a line for each name that two hosts wrote.

        Raises:  TransferFailed
        """
        clashes = []
        for directory in self._directories if self._url else ():
            for path in sorted(file for file in directory.rglob("*") if file.is_file()):
                if self._known.get(path) == (now := _print(path)):
                    continue
                name = str(path.relative_to(directory))
                self._objects.put(path, joined(self._url, name))
                self._known[path] = now
                if self._sent_from.setdefault(name, path) != path:
                    clashes.append(f"checkpoint {name} was written by two hosts under one name; the last one is kept")
        return clashes


def _print(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
