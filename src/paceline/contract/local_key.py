"""The access key that a `paceline sagemaker-local` makes, and where clients of the same user on the same machine find it."""

import configparser
import ipaddress
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from paceline.atomic_write import write_whole
from paceline.recording.plain_files import open_plain
from paceline.user_folders import user_state_folder

# As AWS's own tools read it: AWS_SHARED_CREDENTIALS_FILE names such a file.
CREDENTIALS_FILE = "credentials"
_SECTION, _ID, _SECRET = "default", "aws_access_key_id", "aws_secret_access_key"
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class AccessKey:
    """The key that signs requests."""

    id: str
    """Public part, which is sent with each request."""
    secret: str = field(repr=False)
    """Secret part, which is never sent."""


def new_access_key() -> AccessKey:
    """A random one, with 128 and 256 bits."""
    return AccessKey(id=f"PACELINE{secrets.token_hex(16).upper()}", secret=secrets.token_urlsafe(32))


@contextmanager
def published(key: AccessKey, file: Path, port: int | None, index: Path | None = None) -> Iterator[str | None]:
    """Keep the key in `file`, readable by its owner only, and note its path for this user's clients while the server runs.

    Returns the reason if the note could not be written; the user then has to tell clients the file.

    Raises:  OSError: the file cannot be written
    """
    _write(key, file)
    entry = None if port is None else _entry(port, index)
    why = _note(entry, file) if entry is not None else None
    try:
        yield why
    finally:
        for path in (file, *([entry] if entry is not None and why is None else [])):
            with suppress(OSError):
                path.unlink()


def access_key_of(url: str, index: Path | None = None) -> AccessKey | None:
    """The key of this user's server at a URL; None for another machine, another port, or a server of another user.

    Holds:   the file counts only if this user owns it and no other user may read it
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    if port is None or not _is_this_machine(host):
        return None
    try:
        return _read(_entry(port, index))
    except (OSError, configparser.Error, KeyError, UnicodeDecodeError):
        return None


def _entry(port: int, index: Path | None) -> Path:
    folder = index or user_state_folder() / "sagemaker-local"
    # Several machines may share the home directory.
    return folder / f"{socket.gethostname()}-{port}"


def _note(entry: Path, file: Path) -> str | None:
    draft = entry.with_name(f".{entry.name}-{secrets.token_hex(4)}")
    try:
        entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.symlink_to(file.absolute())
        draft.replace(entry)
    except OSError as error:
        return f"{entry}: {error.strerror}"
    return None


def _write(key: AccessKey, file: Path) -> None:
    write_whole(file, f"[{_SECTION}]\n{_ID} = {key.id}\n{_SECRET} = {key.secret}\n", mode=0o600)


def _read(path: Path) -> AccessKey | None:
    with open_plain(path) as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            return None
        text = file.read(_MOST_BYTES).decode()
    table = configparser.RawConfigParser()
    table.read_string(text)
    return AccessKey(id=table[_SECTION][_ID], secret=table[_SECTION][_SECRET])


def _is_this_machine(host: str) -> bool:
    if host.lower() in ("localhost", socket.gethostname().lower()):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    # Only an address of this machine can be bound.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return not address.is_multicast
