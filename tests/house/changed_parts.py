"""Which sides of the house a change touches, so that `.ci/run` runs their suites in full and of the others one job each.

python tests/house/changed_parts.py    "kernel" and the names of parts, a line each; all of them where nothing says what has changed
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from kernel_and_parts import EDGES, KERNEL, PARTS, part_of, part_of_test

EVERYTHING = frozenset({KERNEL, *PARTS})
# What decides about every suite: the border between kernel and parts, how tests are started and sorted, and what is installed for them.
_OF_ALL = (
    ".ci/",
    "Makefile",
    "pyproject.toml",
    "src/paceline/part.py",
    "tests/conftest.py",
    "tests/house/",
    "tests/shared/",
    "tests/torches/",
)
# Pages are read by the tests of this repository, which always run, and the benchmarks by nobody.
_OF_NONE = ("docs/", "bench/", ".github/", "examples/README")


def touched(paths: Iterable[str]) -> frozenset[str]:
    """The sides that files of this repository can change: their own, and the parts that use it. `paths`: from the root of the repository.

    Holds:   no path -> nothing; a file of part.py's, of CI or of no known place -> everything
    """
    found = set()
    for path in paths:
        if path.startswith(_OF_ALL):
            return EVERYTHING
        top, _, inside = path.partition("/")
        if path.startswith("src/paceline/"):
            found.add(part_of(path.removeprefix("src/paceline/")))
        elif top == "tests":
            found.add(part_of_test(inside))
        elif top == "examples":
            found.add(KERNEL)
        elif not path.startswith(_OF_NONE) and not (path.endswith(".md") and not inside):
            return EVERYTHING
    users = {user for user, uses in EDGES.items() if uses & found}
    return frozenset(found | users)


def changed_files(repository: Path, branch: str = "main") -> list[str] | None:
    """What differs from the point where HEAD left `branch`, uncommitted files included; None: there is no such point, or it is HEAD."""

    def git(*words: str) -> str | None:
        done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "HEAD")
    bases = (git("merge-base", "HEAD", name) for name in (f"origin/{branch}", branch))
    base = next((one for one in bases if one and one != head), None)
    if base is None:
        return None
    found = (git("diff", "--name-only", base), git("ls-files", "--others", "--exclude-standard"))
    return None if None in found else [path for text in found if text for path in text.splitlines()]


if __name__ == "__main__":
    changed = changed_files(Path(__file__).resolve().parents[2])
    print("\n".join(sorted(EVERYTHING if changed is None else touched(changed))))
