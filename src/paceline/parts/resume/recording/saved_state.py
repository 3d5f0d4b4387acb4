"""The manifest of a saved step: which files belong to it, what they must contain, and which job may go on from them.

    step-<step>/rank-<rank>.<token>.safetensors   the tensors of a rank's slot
    step-<step>/rank-<rank>.<token>.msgpack       its plain values
    step-<step>/manifest.json                     written last: without it the step does not exist
    ended.json                                    the job has ended well, and there is nothing to go on from

A token is drawn for each save, so that a step that is saved again never changes a file of a manifest that is there.
"""

import hashlib
import os
import re
import shlex
from pathlib import Path

import msgspec

from paceline.recording.layout import STATE_FOLDER

MANIFEST = "manifest.json"
ENDED = "ended.json"
PLACE_FILE = "place.json"
_STEP = re.compile(r"step-([1-9][0-9]{0,18})")
_SCHEMA = "paceline.saved_state/2"
_ANY_SCHEMA = re.compile(r"paceline\.saved_state/[0-9]{1,4}")
# A name beside the manifest: no way out of its directory, and not the manifest itself.
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.(?:safetensors|msgpack)")
_MOST_BYTES = 1 << 50


class NoManifest(Exception):
    """The manifest is cut, changed, or of another version of the format. The text says which."""


class SavedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a saved step."""

    name: str
    """Its name beside the manifest."""
    size_bytes: int
    """Its size."""
    sha256: str
    """Its SHA-256, in hexadecimal digits."""


class SavedRank(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was saved of a rank."""

    tensors: SavedFile
    """The tensors, in the safetensors format."""
    plain: SavedFile
    """The plain values, as plain_values.py writes them."""
    batch_crc: int | None
    """Checksum of the batch that was taken next; None: it was not known yet."""


class JobFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a job must have in common with the job that goes on from its state."""

    run_id: str
    """Id of the run that saved it."""
    script: str
    """Path of the script, or the name of the module."""
    script_sha256: str
    """SHA-256 of the script; empty: it is a module."""
    hash_seed: str
    """PYTHONHASHSEED of the ranks."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A saved step."""

    step: int
    """The step after which the state was taken."""
    saved_ns: int
    """When it was saved, Unix ns."""
    job: JobFacts
    """The job."""
    python: str
    """Version of the ranks' Python."""
    torch: str
    """Version of the ranks' torch."""
    ranks: tuple[SavedRank, ...]
    """What was saved, in the order of the ranks."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def files(self) -> list[SavedFile]:
        """Every file of the step, besides the manifest."""
        return [file for rank in self.ranks for file in (rank.tensors, rank.plain)]


class _Sealed(msgspec.Struct):
    schema: str
    manifest: msgspec.Raw
    sha256: str


def manifest_text(manifest: Manifest) -> bytes:
    """The content of manifest.json."""
    inner = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(_SCHEMA, msgspec.Raw(inner), hashlib.sha256(inner).hexdigest())) + b"\n"


def parse_manifest(text: bytes) -> Manifest:
    """The manifest in the content of manifest.json.

    Holds:   parse_manifest(manifest_text(manifest)) == manifest; a text of which a byte was cut or changed raises
    Raises:  NoManifest
    """
    try:
        sealed = msgspec.json.decode(text, type=_Sealed)
        if sealed.schema != _SCHEMA:
            raise NoManifest(f"it is of another version of paceline ({sealed.schema})")
        if hashlib.sha256(sealed.manifest).hexdigest() != sealed.sha256:
            raise NoManifest("its checksum does not match")
        manifest = msgspec.json.decode(sealed.manifest, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NoManifest(f"it cannot be read: {error}") from error
    for file in manifest.files:
        if _FILE_NAME.fullmatch(file.name) is None or not 0 <= file.size_bytes <= _MOST_BYTES:
            raise NoManifest(f"it names a file that no save writes: {file.name[:80]!r}, {file.size_bytes} bytes")
    return manifest


def other_version_of(text: bytes) -> str | None:
    """The schema of a manifest that another version of paceline wrote; None: it is of this one, or no manifest."""
    try:
        schema = msgspec.json.decode(text, type=_Sealed).schema
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return schema if schema != _SCHEMA and _ANY_SCHEMA.fullmatch(schema) else None


def folder_of(step: int) -> str:
    """The name of a step's directory."""
    return f"step-{step}"


def step_of(folder: str) -> int | None:
    """The step of a directory's name; None: it is no step's.

    Holds:   step_of(folder_of(step)) == step
    """
    found = _STEP.fullmatch(folder)
    return int(found[1]) if found else None


def newest_saved_step(run_directory: Path) -> int | None:
    """The newest step that a run has saved in its own directory; None: none, or it saves elsewhere (--checkpoints)."""
    folder = run_directory / STATE_FOLDER
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    steps = (step_of(name) for name in names if (folder / name / MANIFEST).exists())
    return max((step for step in steps if step is not None), default=None)


def command_to_go_on(command: tuple[str, ...], run_id: str) -> str:
    """The command line that goes on from the saved state of a run. `command`: the one that started it.

    Holds:   of ("paceline", "run", "--resume", "auto", "t.py") it is "paceline run --resume <run_id> t.py"
    """
    words = _without_run_id(list(command), run_id)
    for place, word in enumerate(words[:-1]):
        if word == "--resume":
            words[place + 1] = run_id
            return shlex.join(words)
        if word.startswith("--resume="):
            words[place] = f"--resume={run_id}"
            return shlex.join(words)
    return f"paceline run --resume {run_id} ..."


def _without_run_id(words: list[str], run_id: str) -> list[str]:
    """The words without those that named the run: the next one has an id of its own. A script may have such an option too."""
    # Recordings from before --set have the option --run-id.
    for named in (
        ["--set", f"run_id={run_id}"],
        [f"--set=run_id={run_id}"],
        ["--run-id", run_id],
        [f"--run-id={run_id}"],
    ):
        for place in range(len(words)):
            if words[place : place + len(named)] == named:
                return words[:place] + words[place + len(named) :]
    return words
