"""The secret that the agents of a job share. It is given by the user, or it is this user's own, which is made once."""

import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UsageError
from paceline.user_folders import user_config_folder

LEAST_BYTES = 16
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Token:
    """The secret with which this host proves that it belongs to the job."""

    secret: bytes | None
    """The shared secret; None: hosts are admitted without a secret."""
    source: str
    """Where the secret comes from, or why there is none, for people."""
    own_file: Path | None = None
    """The user's own file from which the secret was read; None: the secret was given, or there is none."""


def own_token_file() -> Path:
    """The path of a user's token. If all hosts share the home directory, they all find it."""
    return user_config_folder() / "token"


def token_for(
    file: str | None, environ: Mapping[str, str], *, no_token: bool, needed: bool, must_be_had: bool
) -> Token:
    """The token of this agent. `needed`: other hosts join. `must_be_had`: without a token the port would be open to other users.

    Raises:  UsageError U12: the file cannot be read, is too short, or is readable by others; or there must be a token and there is none;
             U03: a token file and no token are both asked for
    """
    if no_token and file is not None:
        raise UsageError(
            "U03",
            "--set token_file and --set no_token exclude each other",
            saw=f"--set token_file={file} --set no_token=true",
            next="leave --set no_token out",
        )
    if no_token:
        return Token(None, "--set no_token")
    if file is not None:
        return Token(_strong(_read(Path(file)), f"--set token_file={file}"), file)
    if given := environ.get("PACELINE_TOKEN"):
        return Token(_strong(os.fsencode(given).strip(), "PACELINE_TOKEN"), "PACELINE_TOKEN")
    if not needed:
        return Token(None, "one host")
    own = own_token_file()
    try:
        return Token(_strong(_own(own), str(own)), str(own), own)
    except OSError as error:
        if must_be_had:
            raise UsageError(
                "U12",
                "there is no token, and others can reach this job's port",
                saw=f"{own}: {error.strerror}",
                next="export PACELINE_TOKEN=..., the same on every host; where nobody else is on the network: --set no_token=true",
            ) from error
    return Token(None, "none could be made")


def _own(path: Path) -> bytes:
    """This user's token. It is made if there is none yet.

    Raises:  OSError: the token can neither be read nor made
             UsageError U12: another user may read or write the file
    """
    if not path.exists():
        _make(path)
    found = path.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(
            "U12",
            f"the token in {path} is not this user's alone",
            saw=f"owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}",
            next=f"chmod 600 {path}; where somebody has read it: rm {path}, and copy the new one to the other hosts",
        )
    return _read(path)


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f".token.{os.getpid()}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32) + "\n")
    try:
        # If two agents make the file at the same time, the first file stays, and it is complete.
        os.link(new, path)
    except FileExistsError:
        pass
    finally:
        new.unlink()


def _read(path: Path) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            return file.read(_MOST_BYTES).strip()
    except OSError as error:
        raise UsageError(
            "U12", f"the token in {path} cannot be read", saw=str(error.strerror), next=f"ls -l {path}"
        ) from error


def _strong(secret: bytes, source: str) -> bytes:
    if len(secret) < LEAST_BYTES:
        raise UsageError(
            "U12",
            f"the token of {source} can be guessed" if secret else f"{source} holds no token",
            saw=f"{len(secret)} bytes; {LEAST_BYTES} are the least",
            next="openssl rand -hex 32, and the same on every host",
        )
    return secret
