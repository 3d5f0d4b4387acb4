"""torchrun's grammar, release by release, read from torch's own parser: `python tests/torches/torchrun_grammar.py`.

For each release pip downloads one wheel (macOS's, because it is the smallest: 60 to 140 MB; the Python files of all wheels of a release are
the same), a few of its source files are read, and the wheel is deleted. `--from VERSION=DIR` reads a directory that holds `torch/` instead,
such as site-packages. The options come from the parser that `get_args_parser` makes: the function is compiled out of run.py and called, so
torch itself is not imported. Two files are written: torchrun_grammar.json beside this one, and docs/torchrun.md.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

# fmt: off
RELEASES = (
    "2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0",
)
# fmt: on
"""The last patch of each minor release from the oldest torch that paceline takes to the newest one that it was tried on."""
GRAMMAR = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "torchrun.md"
_SOURCES = ("torch/distributed/run.py", "torch/distributed/argparse_util.py", "torch/numa/binding.py")
_RENDEZVOUS = "torch/distributed/elastic/rendezvous/"
_READERS = {"get", "get_as_int", "get_as_bool", "_get_timeout"}
_OF_THE_SCRIPT = ("help", "training_script", "training_script_args")
_KINDS = {"comma_separated_list": "list"}
"""Functions of torch that convert the text of an option -> their name in the grammar. Others have their own name."""

Row = dict[str, Any]


def options_of(torch: Path) -> list[Row]:
    """The options of this torch's parser, in its order. `torch`: the directory that holds torch/."""
    namespace = _compiled(torch)
    with _without_variables():
        parser = namespace["get_args_parser"]()
    reading = (namespace["env"], namespace["check_env"])
    return [
        {
            "dest": action.dest,
            "spellings": list(action.option_strings),
            "variable": f"PET_{action.dest.upper()}" if isinstance(action, reading) else "",
            "kind": _KINDS.get(getattr(action.type, "__name__", "str"), getattr(action.type, "__name__", "str")),
            "is_flag": action.nargs == 0,
            "exits": isinstance(action, namespace.get("_PrintCompletionAction", ())),
            "choices": list(action.choices or ()),
            "default": action.default,
        }
        for action in parser._actions
        if action.dest not in _OF_THE_SCRIPT
    ]


def _compiled(torch: Path) -> dict[str, Any]:
    """What run.py defines, of which only functions and classes are compiled, with the little that they need of torch."""
    namespace: dict[str, Any] = {name: getattr(argparse, name) for name in ("ArgumentParser", "REMAINDER")}
    namespace["_Action"] = argparse.Action
    for name in ("torch/distributed/argparse_util.py", "torch/distributed/run.py"):
        tree = ast.parse((torch / name).read_text(encoding="utf-8"))
        # Annotations and whatever else runs at import would need torch.
        definitions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
        wanted: list[ast.stmt] = [node for node in definitions if not node.decorator_list]
        if name.endswith("argparse_util.py"):
            wanted = tree.body
        code = ast.fix_missing_locations(ast.Module([_ANNOTATIONS, *wanted], []))
        exec(compile(code, name, "exec"), namespace)
    binding = torch / "torch/numa/binding.py"
    if binding.exists():
        namespace["_AffinityMode"] = namespace["AffinityMode"] = _members(
            ast.parse(binding.read_text()), "AffinityMode"
        )
    return namespace


_ANNOTATIONS = ast.parse("from __future__ import annotations").body[0]


def _members(tree: ast.Module, name: str) -> list[Any]:
    """The members of an enumeration, as objects with a value."""
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    assigned = (node for node in found.body if isinstance(node, ast.Assign))
    return [argparse.Namespace(value=ast.literal_eval(node.value)) for node in assigned]


@contextmanager
def _without_variables() -> Iterator[None]:
    """No variable gives another default, and a package that lengthens a list of choices is not there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    with mock.patch.dict(os.environ, kept, clear=True), mock.patch.dict(sys.modules, {"shtab": None}):
        yield


def rendezvous_keys_of(torch: Path) -> list[Row]:
    """The keys of --rdzv-conf that this torch reads, and the rendezvous that reads each."""
    found: dict[str, set[str]] = {}
    for path in sorted((torch / _RENDEZVOUS).glob("*.py")):
        for key in _keys_read(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(key, set()).add(path.stem)
    return [{"key": key, "read_by": sorted(files)} for key, files in sorted(found.items())]


def _keys_read(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            of = ast.unparse(node.args[0] if name == "_get_timeout" and node.args else node.func)
            words = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if name in _READERS and of.startswith("params") and words:
                yield f"{words[0]}_timeout" if name == "_get_timeout" else words[0]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "params.config":
            if isinstance(node.slice, ast.Constant):
                yield str(node.slice.value)
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "params.config":
            if isinstance(node.left, ast.Constant):
                yield str(node.left.value)


def joined(of_release: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Each row once, with the releases that have it: `since`, and `until` where the newest one does not. Releases ascend.

    Rows have the order of the newest release; rows that it does not have come last.
    """
    releases = list(of_release)
    found: dict[str, list[str]] = {}
    for release, rows in reversed(of_release.items()):
        for row in rows:
            found.setdefault(json.dumps(row), []).append(release)
    joint = []
    for text, having in found.items():
        until = {} if having[0] == releases[-1] else {"until": having[0]}
        joint.append({**json.loads(text), "since": having[-1], **until})
    return joint


def at(rows: Sequence[Row], release: str) -> list[Row]:
    """The rows of one release of the grammar, without the releases."""
    number = numbers(release)
    return [
        {name: value for name, value in row.items() if name not in ("since", "until")}
        for row in rows
        if numbers(row["since"]) <= number <= numbers(row.get("until", "999.0"))
    ]


def numbers(release: str) -> tuple[int, int]:
    """Major and minor number: "2.13.0+cpu" -> (2, 13)."""
    major, minor, *_ = release.split(".")
    return int(major), int(minor)


def grammar() -> dict[str, Any]:
    """The grammar as it was written: releases, options, rendezvous_keys."""
    found: dict[str, Any] = json.loads(GRAMMAR.read_text(encoding="utf-8"))
    return found


def parser_of(rows: Sequence[Row]) -> argparse.ArgumentParser:
    """A parser that takes what torchrun of one release takes, made from its rows."""
    parser = argparse.ArgumentParser(prog="torchrun")
    kinds = {"int": int, "float": float, "list": _comma_separated, "str": str}
    for row in rows:
        text = os.environ.get(row["variable"]) if row["variable"] else None
        if row["is_flag"]:
            default = row["default"] if text is None else bool(int(text))
            parser.add_argument(*row["spellings"], dest=row["dest"], action="store_const", const=True, default=default)
            continue
        parser.add_argument(
            *row["spellings"],
            dest=row["dest"],
            action=_Exit if row["exits"] else "store",
            type=kinds[row["kind"]],
            choices=row["choices"] or None,
            default=row["default"] if text is None else text,
        )
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


class _Exit(argparse.Action):
    """An option that does its work while it is parsed, and ends the process."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.exit()


def _comma_separated(text: str) -> list[str]:
    return [item.replace("\0", ",") for item in text.replace(",,", "\0").split(",")]


@contextmanager
def downloaded(release: str) -> Iterator[Path]:
    """A directory with the files of this release that are read."""
    with tempfile.TemporaryDirectory() as folder:
        platforms = [word for name in ("macosx_14_0_arm64", "macosx_11_0_arm64") for word in ("--platform", name)]
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir")
        which = ("--no-deps", "--only-binary=:all:", "--python-version", "3.11", *platforms)
        # The version is the caller's choice, so a cap in this machine's configuration of pip does not count.
        environment = {**os.environ, "PIP_CONSTRAINT": os.devnull}
        subprocess.run([*pip, *which, "--dest", folder, f"torch=={release}"], env=environment, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name in _SOURCES or (name.startswith(_RENDEZVOUS) and name.endswith(".py")):
                    archive.extract(name, folder)
        wheel.unlink()
        yield Path(folder)


def write(directories: Mapping[str, Path]) -> None:
    """Read every release and write the grammar. A release without a directory is downloaded."""
    options: dict[str, list[Row]] = {}
    keys: dict[str, list[Row]] = {}
    for release in RELEASES:
        if release in directories:
            options[release], keys[release] = options_of(directories[release]), rendezvous_keys_of(directories[release])
        else:
            with downloaded(release) as directory:
                options[release], keys[release] = options_of(directory), rendezvous_keys_of(directory)
    parts = {"options": joined(options), "rendezvous_keys": joined(keys)}
    lines = [f' "releases": {json.dumps(RELEASES)}']
    for name, rows in parts.items():
        lines.append(f' "{name}": [\n  ' + ",\n  ".join(map(json.dumps, rows)) + "\n ]")
    GRAMMAR.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def page(found: Mapping[str, Any]) -> str:
    """docs/torchrun.md: the grammar, and what paceline does with each option and key."""
    # Only for the page, so that a grammar can be read without an installed paceline.
    from paceline.cli.job.option_tables import TORCHRUN
    from paceline.cli.values import RENDEZVOUS_KEYS

    ours = {option.dest: option.help.replace("|", "\\|") for option in TORCHRUN}
    options = [
        (
            ", ".join(f"`{one}`" for one in row["spellings"] if "_" not in one),
            _releases(row),
            f"`{row['variable']}`" if row["variable"] else "",
            "" if row["is_flag"] or row["default"] in (None, "", []) else f"`{row['default']}`",
            ours.get(row["dest"], "missing"),
        )
        for row in found["options"]
    ]
    keys = [
        (
            f"`{row['key']}`",
            _releases(row),
            ", ".join(name.removesuffix("_backend").removesuffix("_rendezvous") for name in row["read_by"]),
            _KEYS.get(row["key"], "taken, without effect") if row["key"] in RENDEZVOUS_KEYS else "missing",
        )
        for row in found["rendezvous_keys"]
    ]
    return _PAGE.format(
        releases=", ".join(found["releases"]),
        options=_table(("Option", "torch", "Variable", "Default", "`paceline run`"), options),
        keys=_table(("Key", "torch", "Read by", "`paceline run`"), keys),
    )


_KEYS = {
    "join_timeout": "how long hosts are waited for",
    "timeout": "the same, as the static rendezvous calls it",
    "last_call_timeout": "how long more hosts are waited for once there are enough",
    "is_host": "whether this host is the first one",
    "store_type": "`tcp` is taken; `file` is refused (U32)",
}
"""Keys that have an effect in paceline, and which."""
_PAGE = """\
# torchrun's options, release by release

`paceline run` takes what the newest torchrun takes, on every torch: it never loads torch, so its options do not depend on the installed
release. This page is written by `tests/torches/torchrun_grammar.py`, which reads torch's own parser of each of these releases:
{releases}.

An option may be written with underscores too. The variable gives another default. An option that neither has is refused with the nearest
spelling.

{options}
## Keys of `--rdzv-conf`

A key that is almost one of these is refused as misspelled. Any other key is named in one line and ignored; torchrun ignores it silently.
`etcd` and `etcd-v2` are refused as `--rdzv-backend` (U32); their keys have no effect with another one, as in torchrun.

{keys}"""


def _releases(row: Row) -> str:
    since, until = (".".join(map(str, numbers(row[name]))) if name in row else "" for name in ("since", "until"))
    return since if since == until else f"{since} to {until}" if until else f"{since} on"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="given", action="append", default=[], metavar="VERSION=DIR")
    parser.add_argument("--page", action="store_true", help="only write the page anew, from the grammar that is there")
    args = parser.parse_args(argv)
    if not args.page:
        write({version: Path(path) for version, _, path in (text.partition("=") for text in args.given)})
    PAGE.write_text(page(grammar()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
