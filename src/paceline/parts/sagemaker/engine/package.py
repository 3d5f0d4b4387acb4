"""Makes the archive for SageMaker's containers: the job's code, the entry point, paceline itself and the agents' secret."""

import base64
import gzip
import hashlib
import importlib.metadata
import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import paceline
from paceline.errors import UsageError
from paceline.parts.engines.submission import Submission
from paceline.parts.sagemaker.engine import entry
from paceline.parts.sagemaker.engine.request import ENTRY_FILE, JOB_FILE, TOKEN_FILE

_LEFT_OUT = ("__pycache__", ".pyc", ".pyo")
# The earliest date of a zip file, so that the same files give the same wheel at any time.
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


def requirements() -> tuple[str, ...]:
    """paceline's requirements without extras; (): paceline was not installed by an installer."""
    try:
        found = importlib.metadata.requires("paceline") or ()
    except importlib.metadata.PackageNotFoundError:
        return ()
    return tuple(sorted(text for text in found if "extra ==" not in text))


def wheel_name(given: str | None) -> str:
    """The file name of the shipped wheel: that of the given wheel, or of a wheel of the paceline that runs here."""
    return Path(given).name if given else f"paceline-{paceline.__version__}-py3-none-any.whl"


def wheel_content(given: str | None = None) -> bytes:
    """The content of that wheel.

    Holds:   the same files give the same bytes
    Raises:  UsageError E34: the given one cannot be read
    """
    if given is None:
        return _made_wheel()
    try:
        return Path(given).read_bytes()
    except OSError as error:
        raise UsageError(
            "E34", f"the wheel {given} cannot be read", saw=str(error.strerror), next=f"ls -l {given}"
        ) from error


def pack(job: Submission, archive: Path, *, description: str, token: str, wheel: str | None = None) -> None:
    """Write the archive that the container unpacks as its code directory. No other user may read it, because it has the secret.

    `description`: the text that the entry point reads, see job_file.

    Holds:   the same job, files and token give the same bytes
    Raises:  UsageError E34: a file of the job has the name of one of our files, or the wheel cannot be read
    """
    ours = {
        ENTRY_FILE: Path(entry.__file__).read_bytes(),
        JOB_FILE: description.encode(),
        TOKEN_FILE: f"{token}\n".encode(),
        wheel_name(wheel): wheel_content(wheel),
    }
    archive.touch(mode=0o600)
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for member, data in (*_code(job, ours), *_members(ours)):
            tar.addfile(member, io.BytesIO(data))


def _code(job: Submission, ours: Mapping[str, bytes]) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    if job.package is None:
        return
    with tarfile.open(job.package.archive, "r:gz") as code:
        for member in code:
            if member.name in ours:
                raise UsageError(
                    "E34",
                    f"the job's code has a file {member.name}, which is a name of paceline's",
                    saw=f"{member.size} bytes in {job.package.directory}",
                    next=f"mv {member.name} my_{member.name}",
                )
            content = code.extractfile(member)
            if content is not None:
                yield member, content.read()


def _members(files: Mapping[str, bytes]) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for name, data in files.items():
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), 0o600 if name == TOKEN_FILE else 0o644
        yield member, data


def _made_wheel() -> bytes:
    root = Path(paceline.__file__).parent
    info = f"paceline-{paceline.__version__}.dist-info"
    files = {f"paceline/{path.relative_to(root).as_posix()}": path.read_bytes() for path in _package_files(root)}
    needs = "".join(f"Requires-Dist: {text}\n" for text in requirements())
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: paceline\nVersion: {paceline.__version__}\n{needs}".encode()
    )
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: paceline\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\npaceline = paceline.cli:main\n"
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD").encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _ZIP_DATE)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return buffer.getvalue()


def _package_files(root: Path) -> list[Path]:
    return sorted(
        path for path in root.rglob("*") if path.is_file() and not any(part.endswith(_LEFT_OUT) for part in path.parts)
    )


def _record(files: Mapping[str, bytes], itself: str) -> str:
    """The RECORD file of PEP 376: name, digest and size of every file. The record's own line has neither digest nor size."""
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        for name, data in files.items()
    }
    return "".join(f"{name},sha256={digests[name]},{len(data)}\n" for name, data in files.items()) + f"{itself},,\n"
