"""Collects the code of a job in one directory: source_dir, the entry point, the dependencies, and the git clone that `git_config` names."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paceline.errors import UsageError
from paceline.parts.engines.package import ALWAYS_IGNORED, package
from paceline.parts.engines.submission import Package
from paceline.parts.sagemaker.estimator.arguments import shown
from paceline.probes.git_state import git_state
from paceline.spelling import nearest

_GIT_KEYS = ("repo", "branch", "commit", "2FA_enabled", "username", "password", "token")
_GIT_SECONDS = 600.0
# Names of branches or files in one message.
_LISTED = 8
COMMAND_FILE = "paceline_command.sh"
# These options are git's own protocol for credentials. The values come from environment variables, which process lists do not show to other
# users. A server may redirect git to another host or to plain http. If git then asks for that host's password, it gets no answer.
_CREDENTIAL_HELPER = (
    '!f() { test "$1" = get || return 0; https= host=; while IFS= read -r line && test -n "$line"; do case "$line" in '
    'protocol=https) https=1;; "host=$PACELINE_GIT_HOST") host=1;; esac; done; test "$https$host" = 11 && '
    'echo "username=$PACELINE_GIT_USER" && echo "password=$PACELINE_GIT_SECRET"; }; f'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A directory that can be shipped."""

    directory: Path
    """The complete directory."""
    script: str
    """The script, relative to `directory`."""
    origin: Path | None = None
    """The user's directory of the code; None: the code was cloned."""


@contextmanager
def code_of(values: Mapping[str, Any], *, directory: Path, environ: Mapping[str, str]) -> Iterator[Code]:
    """The complete code that the arguments name. Copies and clones are deleted at the end of the block.

    `directory`: relative paths start here.

    Raises:  UsageError U02: a script or a directory does not exist, or two files have one name; git failed
    """
    with tempfile.TemporaryDirectory(prefix="paceline-code-") as scratch:
        git = checked_git(values.get("git_config"))
        root = clone(git, Path(scratch) / "repository", environ) if git else directory
        if values.get("command") is not None:
            yield _command(values, root, Path(scratch) / "code", cloned=git is not None)
            return
        yield _laid(values, root, Path(scratch) / "code", cloned=git is not None)


def shipped(code: Code, archive: Path, ignore: Sequence[str] = ()) -> Package:
    """Pack the code to `archive` without what `ignore` matches. The package also has the git state of the work tree.

    Raises:  UsageError E02: the code is too large, or a file cannot be read
    """
    made = package(code.directory, archive, ignore)
    if code.origin is None or code.origin == code.directory:
        return made
    commit, dirty = git_state(code.origin)
    return replace(made, directory=str(code.origin.resolve()), commit=commit, dirty=dirty)


def check_code(values: Mapping[str, Any], directory: Path) -> None:
    """Check as much of the code as is possible without git and without copying.

    Raises:  UsageError U02
    """
    if values.get("command") is not None:
        _source(values, directory, cloned=False)
    elif checked_git(values.get("git_config")) is None:
        _script(values, directory, cloned=False)
        _dependencies(values, directory)
    elif not isinstance(values.get("entry_point"), str):
        raise _no_entry_point(values.get("entry_point"))


def checked_git(value: object) -> dict[str, Any] | None:
    """Raises:  UsageError U02: not a dict, an unknown key, no repo, or a secret that git cannot use for this repo."""
    if value is None:
        return None
    example = "git_config={'repo': 'https://...', 'branch': 'main'}"
    if not isinstance(value, Mapping):
        raise UsageError("U02", "git_config is a dict", saw=type(value).__name__, next=example)
    for key in value:
        if key not in _GIT_KEYS:
            near = nearest(str(key), _GIT_KEYS)
            saw = f"did you mean {near}?" if near else f"keys are {', '.join(_GIT_KEYS)}"
            raise UsageError(
                "U02", f"git_config has no key {key!r}", saw=saw, next=f"write {near!r}" if near else example
            )
    repo = value.get("repo")
    if not isinstance(repo, str) or not repo or repo.startswith("-"):
        raise UsageError("U02", "git_config names no repo", saw=f"keys {', '.join(value) or 'none'}", next=example)
    for key in ("branch", "commit"):
        if value.get(key) is not None and (
            not isinstance(value[key], str) or not value[key] or value[key].startswith("-")
        ):
            raise UsageError("U02", f"git_config: {key} is a name", saw=shown(value[key]), next=example)
    secret = any(value.get(key) for key in ("password", "token"))
    if secret and not repo.startswith("https://"):
        raise UsageError(
            "U02",
            "git_config: password and token are sent over https alone",
            saw=repo.partition("@")[2] or repo,
            next="use the https:// address, or an ssh key and neither of the two",
        )
    return dict(value)


def clone(git: Mapping[str, Any], target: Path, environ: Mapping[str, str]) -> Path:
    """Clone the repository to `target`, one commit deep if the server allows it.

    Raises:  UsageError U02: git is not installed, or git's error message without the secret
    """
    commit, branch = git.get("commit"), git.get("branch")
    if commit is None:
        chosen = ["--branch", branch] if branch else []
        try:
            _git(git, ["clone", "--quiet", "--depth", "1", *chosen, "--", git["repo"], str(target)], environ)
        except UsageError as refused:
            # A repository that does not answer is not asked twice: git names the branch only where that is what it lacks.
            if (
                not branch
                or branch not in (refused.saw or "")
                or branch in (known := _branches(git, environ))
                or not known
            ):
                raise
            near = nearest(branch, known)
            raise UsageError(
                "U02",
                f"{without_secret(git['repo'])} has no branch {branch}",
                saw=f"its branches and tags are {_listed(known)}",
                next=f"'branch': {near!r} in git_config" if near else "write one of them in git_config",
            ) from refused
        return target
    target.mkdir()
    _git(git, ["-C", str(target), "init", "--quiet"], environ)
    _git(git, ["-C", str(target), "remote", "add", "origin", "--", git["repo"]], environ)
    try:
        _git(git, ["-C", str(target), "fetch", "--quiet", "--depth", "1", "origin", commit], environ)
    except UsageError:
        # Some servers do not serve a single commit by its hash, and no server does so by an abbreviated hash.
        _git(git, ["-C", str(target), "fetch", "--quiet", "origin", *([branch] if branch else [])], environ)
    _git(git, ["-C", str(target), "checkout", "--quiet", "--detach", commit], environ)
    return target


def credentials(git: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The options and variables that tell git the secret for the repository's own host and no other; empty without a secret."""
    secret = git.get("token") or git.get("password")
    if not secret:
        return [], {}
    variables = {
        "PACELINE_GIT_HOST": urlsplit(git["repo"]).netloc.rpartition("@")[2],
        "PACELINE_GIT_USER": str(git.get("username") or ("x-access-token" if git.get("token") else "")),
        "PACELINE_GIT_SECRET": str(secret),
    }
    return ["-c", "credential.helper=", "-c", f"credential.helper={_CREDENTIAL_HELPER}"], variables


def _branches(git: Mapping[str, Any], environ: Mapping[str, str]) -> list[str]:
    """The names of the repository's branches and tags; empty if it does not say them."""
    try:
        said = _git(git, ["ls-remote", "--heads", "--tags", "--refs", "--", git["repo"]], environ)
    except UsageError:
        return []
    return [line.split("\t")[1].split("/", 2)[2] for line in said.splitlines()]


def _git(git: Mapping[str, Any], words: list[str], environ: Mapping[str, str]) -> str:
    helper, variables = credentials(git)
    try:
        done = subprocess.run(
            ["git", *helper, *words],
            env={**environ, **variables, "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise UsageError(
            "U02", "git_config needs the program git", saw=str(error), next="apt-get install git"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            "U02",
            "git did not end",
            saw=f"waited {_GIT_SECONDS:.0f} s",
            next=f"git ls-remote {without_secret(git['repo'])}",
        ) from error
    if done.returncode != 0:
        said = done.stderr.strip() or f"exit {done.returncode}"
        for hidden in (git.get("token"), git.get("password")):
            said = said.replace(str(hidden), "***") if hidden else said
        raise UsageError(
            "U02",
            f"git could not fetch {without_secret(git['repo'])}",
            saw=without_secret(said),
            next=f"git ls-remote {without_secret(git['repo'])}",
        )
    return done.stdout


def without_secret(text: str) -> str:
    """The text without the part between :// and @ of its addresses."""
    words = []
    for word in text.split(" "):
        scheme, slashes, rest = word.partition("://")
        words.append(f"{scheme}{slashes}{rest.rpartition('@')[2]}" if slashes and "@" in rest else word)
    return " ".join(words)


def _laid(values: Mapping[str, Any], root: Path, stage: Path, *, cloned: bool) -> Code:
    source, script = _script(values, root, cloned=cloned)
    beside = _dependencies(values, root)
    origin = None if cloned else source
    if source is not None and not beside:
        return Code(directory=source, script=script, origin=origin)
    if source is not None:
        shutil.copytree(source, stage, ignore=shutil.ignore_patterns(*ALWAYS_IGNORED))
    else:
        stage.mkdir(parents=True)
        file = root / str(values["entry_point"])
        shutil.copy(file, stage / file.name)
        origin = None if cloned else file.parent
    for path in beside:
        target = stage / path.name
        if target.exists():
            raise UsageError(
                "U02",
                f"two files of the code are called {path.name}",
                saw=f"{path}, and one in source_dir or before it",
                next=f"rename {path.name}",
            )
        if path.is_dir():
            shutil.copytree(path, target, ignore=shutil.ignore_patterns(*ALWAYS_IGNORED))
        else:
            shutil.copy(path, target)
    return Code(directory=stage, script=script, origin=origin)


def _command(values: Mapping[str, Any], root: Path, stage: Path, *, cloned: bool) -> Code:
    """source_dir, and beside it a script with the command, which a shell runs once on every host."""
    source = _source(values, root, cloned=cloned)
    if source is not None:
        shutil.copytree(source, stage, ignore=shutil.ignore_patterns(*ALWAYS_IGNORED))
    else:
        stage.mkdir(parents=True)
    (stage / COMMAND_FILE).write_text(f"#!/bin/bash\n{values['command']}\n", encoding="utf-8")
    return Code(directory=stage, script=COMMAND_FILE, origin=None if cloned else source)


def _script(values: Mapping[str, Any], root: Path, *, cloned: bool) -> tuple[Path | None, str]:
    """source_dir if there is one, and the script relative to the shipped directory."""
    entry = values.get("entry_point")
    entry = str(entry) if isinstance(entry, Path) else entry
    if not isinstance(entry, str) or not entry:
        raise _no_entry_point(entry)
    directory = _source(values, root, cloned=cloned)
    if directory is None:
        file = root / entry.removeprefix("file://")
        if not file.is_file():
            raise _missing(entry, file, root, cloned)
        _check_inside(file, root, cloned)
        return None, file.name
    file = directory / entry
    if not file.is_file():
        raise _missing(entry, file, directory, cloned)
    _check_inside(file, directory, True)
    return directory, Path(entry).as_posix()


def _source(values: Mapping[str, Any], root: Path, *, cloned: bool) -> Path | None:
    """source_dir; None: there is none.

    Raises:  UsageError U02: it is not a directory of this machine
    """
    source = values.get("source_dir")
    source = str(source) if isinstance(source, Path) else source
    if source is None:
        return None
    if not isinstance(source, str):
        raise UsageError("U02", "source_dir is a directory", saw=shown(source), next="source_dir='src'")
    if "://" in source and not source.startswith("file://"):
        saw = f"{source}; code is shipped from this machine, so that what runs is what was looked at"
        raise UsageError(
            "U02",
            "source_dir is not on this machine",
            saw=saw,
            next=f"aws s3 cp {source} - | tar xz -C src, and source_dir='src'",
        )
    directory = root / Path(source.removeprefix("file://")).expanduser()
    if not directory.is_dir():
        what = f"source_dir {source} is not a directory"
        if not cloned:
            raise UsageError("U02", what, saw=f"looked for {directory}", next=f"ls {directory.parent}")
        near = sorted(path.relative_to(root).as_posix() for path in root.rglob(Path(source).name) if path.is_dir())
        raise UsageError(
            "U02",
            f"{what} of the repository",
            saw=f"the repository has {_listed(_names(root))}",
            next=f"source_dir={near[0]!r}" if near else "write source_dir as a path from the repository's root",
        )
    _check_inside(directory, root, cloned)
    return directory


def _dependencies(values: Mapping[str, Any], root: Path) -> tuple[Path, ...]:
    given = values.get("dependencies")
    if given is None:
        return ()
    if not isinstance(given, list | tuple) or not all(isinstance(one, str | Path) for one in given):
        raise UsageError(
            "U02", "dependencies is a list of directories and files", saw=shown(given), next="dependencies=['libs']"
        )
    paths = tuple((root / Path(one).expanduser()).absolute() for one in given)
    for path in paths:
        if not path.exists():
            raise UsageError(
                "U02", f"the dependency {path.name} is not there", saw=f"looked for {path}", next=f"ls {path.parent}"
            )
    return paths


def _check_inside(path: Path, root: Path, wanted: bool) -> None:
    if wanted and not path.resolve().is_relative_to(root.resolve()):
        raise UsageError(
            "U02", f"{path.name} lies outside of what is shipped", saw=str(path), next=f"move it below {root}"
        )


def _missing(entry: str, file: Path, directory: Path, cloned: bool) -> UsageError:
    known = [one.name for one in directory.glob("*.py")] if directory.is_dir() else []
    near = file.name if file.name in known else nearest(file.name, known)
    # A clone is gone when the error is read.
    looked = f"the repository has {_listed(_names(directory))} there" if cloned else f"looked for {file}"
    look = "write entry_point as a path from source_dir, or from the repository's root" if cloned else f"ls {directory}"
    return UsageError(
        "U02",
        f"the entry point {entry} is not there",
        saw=looked + (f"; the nearest one is {near}" if near else ""),
        next=f"entry_point={near!r}" if near else look,
    )


def _names(directory: Path) -> list[str]:
    return sorted(
        f"{path.name}/" if path.is_dir() else path.name for path in directory.iterdir() if path.name != ".git"
    )


def _no_entry_point(value: object) -> UsageError:
    saw = "no entry_point" if value is None else shown(value)
    return UsageError("U02", "entry_point names the script", saw=saw, next="entry_point='train.py'")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "") if names else "nothing"
