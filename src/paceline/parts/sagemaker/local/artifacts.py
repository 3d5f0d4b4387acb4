"""The results of a job: model.tar.gz and output.tar.gz from the trees of all its hosts, and checkpoints while it runs."""

import filecmp
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from paceline.parts.sagemaker.local.objects import failing_as_sagemaker_does, storage_url, while_it_goes_on
from paceline.parts.sagemaker.local.opt_ml import HostDir
from paceline.parts.sagemaker.local.validation import CHECKPOINTS
from paceline.storage.checkpoints import CheckpointSync
from paceline.storage.download import DownloadTarget, Progress, nobody_asks
from paceline.storage.files import file_names
from paceline.storage.ownership import OwnershipLedger
from paceline.storage.upload import pack_files, send
from paceline.storage.urls import below


def combined(directories: Iterable[tuple[str, Path]]) -> tuple[dict[str, Path], list[str]]:
    """Merge the hosts' directories into one tree: name -> file, and a line for each name under which two hosts left different files.

    The first host keeps the name. Another host's file gets the name NAME.HOST.

    Holds:   no file is lost
    """
    files: dict[str, Path] = {}
    clashes = []
    for host, directory in directories:
        for name in file_names(directory):
            path = directory / name
            if name not in files:
                files[name] = path
            elif not filecmp.cmp(files[name], path, shallow=False):
                files[f"{name}.{host}"] = path
                clashes.append(f"{name} of {host} differs from the first host's and was kept as {name}.{host}")
    return files, clashes


def upload(
    request: Mapping[str, Any], name: str, all_places: Sequence[HostDir], directory: Path, *, with_model: bool
) -> tuple[str | None, list[str]]:
    """Upload the job's results below its output path. Returns the URL of its model (None without one), and lines for the log.

    Raises:  TransferFailed
    """
    output = request["OutputDataConfig"]
    base = below(output["S3OutputPath"], name, "output")
    plain = output.get("CompressionType") == "NONE"
    with failing_as_sagemaker_does():
        results, clashes = combined((place.name, place.tree.output_data) for place in all_places)
        if results:
            _put(results, "output", base, directory, plain=plain)
        if not with_model:
            return None, clashes
        model, model_clashes = combined((place.name, place.tree.model) for place in all_places)
        return _put(model, "model", base, directory, plain=plain), [*clashes, *model_clashes]


def _put(files: Mapping[str, Path], kind: str, base: str, directory: Path, *, plain: bool) -> str:
    doing = f"{kind} could not be put"
    if plain:
        for name, path in files.items():
            send(path, storage_url(below(base, kind, name)), doing, Progress(nobody_asks))
        return f"{below(base, kind)}/"
    archive = directory / f"{kind}.tar.gz"
    pack_files(files, archive)
    url = below(base, archive.name)
    send(archive, storage_url(url), doing, Progress(nobody_asks))
    return url


class Checkpoints:
    """The checkpoint directory of every host. It is fetched at the start and uploaded to its URL while the job runs.

    All hosts share one prefix, as in SageMaker: a name belongs to the host that wrote it first. Deletions are not uploaded.
    """

    def __init__(self, request: Mapping[str, Any], all_places: Sequence[HostDir]) -> None:
        config = request.get("CheckpointConfig", {})
        url = config.get("S3Uri", "")
        inside = Path(config.get("LocalPath", CHECKPOINTS)).relative_to("/opt/ml")
        self._ledger = OwnershipLedger()
        self._syncs = [
            CheckpointSync(
                DownloadTarget(place.tree.base / inside, place.tree.base.parent / "checkpoints.transfer"),
                storage_url(url),
                shared=len(all_places) > 1,
                claim=partial(self._ledger.claim, place.name),
            )
            for place in (all_places if url else ())
        ]

    def fetch(self, going_on: Callable[[], bool]) -> None:
        """Fetch the checkpoints of an earlier job into every host's directory.

        Raises:  TransferFailed, TransferStopped
        """
        with failing_as_sagemaker_does():
            for sync in self._syncs:
                sync.restore(while_it_goes_on(going_on))

    def send(self, *, final: bool = False) -> list[str]:
        """Upload new or changed files; at the end (`final`) all files. Returns a line for each name that two hosts wrote.

        Raises:  TransferFailed
        """
        with failing_as_sagemaker_does():
            for sync in self._syncs:
                sync.look(Progress(nobody_asks), final=final)
        clashes = self._ledger.clashes() if final else {}
        return [
            f"checkpoint {name} was written by {', '.join((owner, *others))} with different content; that of {owner} is kept"
            for name, (owner, others) in sorted(clashes.items())
        ]
