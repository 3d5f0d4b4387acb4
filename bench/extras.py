"""How long pip looks for what each extra of pyproject.toml needs: the pip that Debian's Python 3.11 brings, and the newest.

    python bench/extras.py [EXTRA ...]

A row for each extra: the seconds of both, downloads of what pip must look into included, nothing from pip's cache, nothing installed.
1 where one takes longer than 20 s or finds nothing that fits together: somebody else's release may have that effect on any day. CPU
seconds stand beside; where they are far less, the network or another program on this machine had the rest. torch counts as installed,
as it is where paceline is used; so the extra `torch` has no row.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
WANTED_SECONDS, MOST_SECONDS = 20.0, 180.0
# `apt-get install python3-venv` on Debian 12.
DEBIAN_PIP = "pip==23.0.1"
_OURS = re.compile(r"paceline\[([\w,-]+)\]")


@dataclass(frozen=True, slots=True)
class Resolution:
    """One pip's answer for one extra."""

    seconds: float
    """From the start of pip to its end."""
    cpu_seconds: float
    """Of pip and what it started."""
    packages: int | None
    """How many packages it would install; None: it found nothing that fits together, or not in time."""
    said: str
    """The last line that it wrote to stderr."""

    @property
    def good(self) -> bool:
        return self.packages is not None and self.seconds <= WANTED_SECONDS


def main() -> int:
    """Print a row for each extra; 1 where one is over what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    extras = requirements_of_extras(REPOSITORY / "pyproject.toml")
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=f"these alone ({', '.join(extras)})")
    args = parser.parse_args()
    if unknown := set(args.extras) - set(extras):
        parser.error(f"no such extra: {', '.join(sorted(unknown))}")
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        pips = [
            environment(Path(folder) / name, wanted) for name, wanted in (("debian", DEBIAN_PIP), ("newest", "pip"))
        ]
        heads = [f"pip {version_of(python)}" for python in pips]
        print(f"{'extra':14}" + "".join(f"{head:>14}{'CPU':>9}{'packages':>10}" for head in heads))
        for extra in args.extras or extras:
            row = [resolve(python, extras[extra]) for python in pips]
            print(f"{extra:14}" + "".join(map(shown, row)), flush=True)
            bad += any(not one.good for one in row)
            for head, one in zip(heads, row, strict=True):
                if one.packages is None:
                    print(f"  {head}: {one.said}")
    if bad:
        print(f"{bad} of {len(args.extras or extras)} take longer than {WANTED_SECONDS:.0f} s or cannot be had")
    return 1 if bad else 0


def requirements_of_extras(pyproject: Path) -> dict[str, list[str]]:
    """What each extra installs beside paceline's own dependencies, those included; an extra that it names is put in its place."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]

    def needed(requirement: str) -> list[str]:
        ours = _OURS.fullmatch(requirement)
        if ours is None:
            return [requirement]
        return [each for name in ours[1].split(",") for one in extras[name] for each in needed(one)]

    return {
        name: [*project["dependencies"], *(each for one in listed for each in needed(one))]
        for name, listed in extras.items()
        if name != "torch"
    }


def environment(directory: Path, pip: str) -> Path:
    """A new environment with this pip, where a torch without requirements counts as installed; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = directory / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", pip], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    torch = packages / "torch-2.13.0.dist-info"
    torch.mkdir()
    (torch / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
    (torch / "RECORD").write_text("")
    return python


def version_of(python: Path) -> str:
    """The pip of an environment."""
    said = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[1]


def resolve(python: Path, requirements: list[str]) -> Resolution:
    """Have pip find everything, and install nothing."""
    with tempfile.NamedTemporaryFile() as report:
        argv = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--no-cache-dir",
            "--disable-pip-version-check",
        ]
        before, started = os.times(), time.monotonic()
        try:
            finished = subprocess.run(
                [*argv, "--dry-run", "--report", report.name, *requirements],
                capture_output=True, text=True, timeout=MOST_SECONDS,
            )  # fmt: skip
            said, code = finished.stderr.strip(), finished.returncode
        except subprocess.TimeoutExpired:
            said, code = f"stopped after {MOST_SECONDS:.0f} s", 1
        seconds, after = time.monotonic() - started, os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        packages = None if code else len(json.loads(Path(report.name).read_bytes())["install"])
    return Resolution(seconds, cpu, packages, (said.splitlines() or [""])[-1])


def shown(one: Resolution) -> str:
    """The cells of one pip."""
    mark = " " if one.good else "!"
    return f"{one.seconds:11.1f} s{mark}{one.cpu_seconds:7.1f} s{one.packages if one.packages is not None else '-':>10}"


if __name__ == "__main__":
    raise SystemExit(main())
