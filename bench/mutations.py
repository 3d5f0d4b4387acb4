"""Does a test notice it if a rule or a guard no longer works? Breaks each of them once in a copy of this repository and runs its tests.

python bench/mutations.py [WORD ...] [--again]    those whose name has one of these words; an hour for all; writes docs/mutations.md

Can be stopped and continued: what was tried stays in ~/.cache/paceline-mutations (PACELINE_MUTATIONS) as long as neither the broken file
nor the tests change. Rules (causes and checks) are made to find nothing, refusals of the protocol to accept; what breaks each promise of
SECURITY.md and each rule of the house is written in bench/data/mutations.json.
"""

import argparse
import ast
import hashlib
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from paceline.rules import checks_of_parts, discover

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "mutations.md"
BY_HAND = Path(__file__).parent / "data" / "mutations.json"
_RESULTS = Path(os.environ.get("PACELINE_MUTATIONS") or Path.home() / ".cache" / "paceline-mutations") / "results.jsonl"
_TIMEOUT_SECONDS = 600
_RECORDED = "tests/faults/test_recorded.py"
# Where what is refused of a message or of a host that joins is written.
_PROTOCOL = ("launch/job/accepted_messages.py", "launch/job/admission.py")


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One thing that is broken. `place`: its file, from the root; `text`: the file when broken. `tests`: where it should be noticed."""

    kind: str
    name: str
    how: str
    place: str
    text: str
    tests: tuple[str, ...]

    @cached_property
    def key(self) -> str:
        """Of what decides the result: the broken file and the tests."""
        found = hashlib.sha256(f"{self.place}\0{self.text}".encode())
        for path in sorted(file for test in self.tests for file in _files(REPOSITORY / test.partition("::")[0])):
            found.update(path.read_bytes())
        return found.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else list(path.rglob("*.py"))


def mutations() -> Iterator[Mutation]:
    """All of them, in the order of the page."""
    for folder in ("causes", "checks", "source", "hosts"):
        tests = (f"tests/rules/{folder}", _RECORDED) if folder == "causes" else (f"tests/rules/{folder}",)
        yield from (_of_rule(rule, folder, tests) for rule in discover(folder))
    yield from (_of_rule(rule, "checks", _tests_beside(rule.find)) for rule in checks_of_parts())
    for place in _PROTOCOL:
        yield from _of_refusals(place)
    for row in json.loads(BY_HAND.read_text(encoding="utf-8")):
        yield _by_hand(row)


def _of_rule(rule: object, folder: str, tests: tuple[str, ...]) -> Mutation:
    """A rule that finds nothing."""
    path = Path(inspect.getsourcefile(rule.find) or "")  # type: ignore[attr-defined]
    text = path.read_text(encoding="utf-8")
    (function,) = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name == rule.find.__name__  # type: ignore[attr-defined]
    )
    first = next(node for node in function.body if not _is_docstring(node))
    lines = text.splitlines(keepends=True)
    lines.insert(first.lineno - 1, " " * first.col_offset + "return iter(())\n")
    return Mutation(
        kind="causes" if folder == "causes" else "checks",
        name=f"{rule.code} {path.stem.partition('_')[2].replace('_', ' ')}",  # type: ignore[attr-defined]
        how="finds nothing",
        place=path.relative_to(REPOSITORY).as_posix(),
        text="".join(lines),
        tests=tests,
    )


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _tests_beside(find: object) -> tuple[str, ...]:
    """The tests of the part that a check belongs to."""
    part = importlib.import_module(find.__module__).__name__.split(".")[2]
    return (f"tests/parts/{part}",)


def _of_refusals(place: str) -> Iterator[Mutation]:
    """Each refusal of a file that accepts: an answer with a text or an objection becomes the one that says that nothing is wrong."""
    path = REPOSITORY / "src/paceline" / place
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Return) or isinstance(node.value, ast.List | ast.ListComp | None):
            continue
        said = ast.get_source_segment(text, node.value) or ""
        texts = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant) and part.value]
        if not any(isinstance(part, str) and " " in part for part in texts):
            continue
        nothing = "None" if said.startswith(("Objection(", "RefusedMessage(")) else '""'
        yield Mutation(
            kind="protocol",
            name=" ".join(said.split()),
            how="is accepted",
            place=path.relative_to(REPOSITORY).as_posix(),
            text=_replaced(text, node.value, nothing),
            tests=("tests/launch/job", "tests/launch/coordinator"),
        )


def _replaced(text: str, node: ast.expr, by: str) -> str:
    lines = text.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: (node.end_lineno or node.lineno) - 1])) + (node.end_col_offset or 0)
    whole = text.encode()
    return (whole[:start] + by.encode() + whole[end:]).decode()


def _by_hand(row: dict[str, object]) -> Mutation:
    """A row of the file: in `file`, the only place of `text` becomes `becomes`; a file that is not there yet begins empty."""
    path = REPOSITORY / str(row["file"])
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    text, becomes = str(row["text"]), str(row["becomes"])
    if before.count(text) != 1 and text:
        raise SystemExit(f"{row['file']}: {before.count(text)} places for {text!r} of {row['guard']!r}")
    return Mutation(
        kind=str(row["kind"]),
        name=str(row["guard"]),
        how=str(row["how"]),
        place=str(row["file"]),
        text=before.replace(text, becomes) if text else before + becomes,
        tests=tuple(row["tests"]),  # type: ignore[arg-type]
    )


def tried(mutation: Mutation, copy: Path) -> str:
    """The first test that goes red in a copy of the repository, or nothing. The copy is whole again afterwards."""
    place = copy / mutation.place
    whole = place.read_bytes() if place.exists() else None
    place.write_text(mutation.text, encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *mutation.tests],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"none ends within {_TIMEOUT_SECONDS} s"
    finally:
        if whole is None:
            place.unlink()
        else:
            place.write_bytes(whole)
    red = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode not in (0, 1, 2) or (done.returncode and red is None):
        raise SystemExit(f"{mutation.name}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
    return red[1] if red else ""


def _copy_of_repository(folder: Path) -> Path:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name)
    # Some rules of the house ask git which files there are.
    for command in (
        ("init", "-q"),
        ("add", "-A"),
        ("-c", "user.name=-", "-c", "user.email=-", "commit", "-qm", "copy"),
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="those whose kind or name has one of these")
    parser.add_argument("--again", action="store_true", help="also those that were tried")
    args = parser.parse_args(argv)
    known = _known()
    every = list(mutations())
    chosen = [one for one in every if not args.words or any(word in f"{one.kind} {one.name}" for word in args.words)]
    # Their keys are of the tests as they are copied, which may be edited while this runs.
    left = [one for one in chosen if one.key not in known or args.again]
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = _copy_of_repository(Path(folder))
        for number, one in enumerate(left, 1):
            known[one.key] = tried(one, copy)
            _RESULTS.parent.mkdir(parents=True, exist_ok=True)
            with _RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": one.key, "red": known[one.key]}) + "\n")
            print(f"{number}/{len(left)} {one.kind} {one.name}: {known[one.key] or 'NOT NOTICED'}", flush=True)
    PAGE.write_text(page(every, known), encoding="utf-8")
    return 1 if any(known.get(one.key) == "" for one in chosen) else 0


def _known() -> dict[str, str]:
    if not _RESULTS.exists():
        return {}
    lines = (json.loads(line) for line in _RESULTS.read_text(encoding="utf-8").splitlines())
    return {str(line["key"]): str(line["red"]) for line in lines}


def page(every: Sequence[Mutation], known: dict[str, str]) -> str:
    """docs/mutations.md."""
    noticed = sum(bool(known.get(one.key)) for one in every)
    lines = [
        "# Is every guard held by a test?",
        "",
        "Each rule and each guard was broken once in a copy of the repository, and the tests beside it were run until the first one failed",
        f"(`python bench/mutations.py`). {noticed} of {len(every)} were noticed.",
    ]
    titles = {
        "causes": "Causes: the rule finds nothing",
        "checks": "Checks: the rule finds nothing",
        "protocol": "The protocol: what is refused is accepted",
        "security": "Promises of SECURITY.md",
        "house": "Rules of the house",
    }
    for kind, title in titles.items():
        lines += ["", f"## {title}", "", "| Broken | How | First test that fails |", "|---|---|---|"]
        for one in every:
            if one.kind == kind:
                red = known.get(one.key)
                shown = "not tried" if red is None else f"`{red}`" if red else "**none**"
                name = f"`{one.name}`" if kind == "protocol" else one.name
                lines.append(f"| {name} | {one.how} | {shown} |".replace("||", "\\|\\|"))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
