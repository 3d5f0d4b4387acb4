"""One other torch in an environment of its own, so that paceline can be tried on it: `python tests/torches/install_torch.py 2.8.0`.

PyPI has most versions of torch only as CUDA builds that bring 5 to 7 GB. On a machine without a GPU torch never calls most of that:
it only has to find the symbols. So one library, compiled here from the symbols that the linker misses, stands in for all the big ones;
whoever calls it is ended. The CUDA runtime is real, because torch asks it for the number of GPUs. torch.compile for a GPU is left out.

An environment takes about 2 GB. It has all that paceline's tests need, but not paceline: PYTHONPATH=src says which one is tried.
Environments lie side by side below $PACELINE_TORCHES (default ~/.cache/paceline-torch), each named by its version. An installation
that was interrupted starts anew. It needs gcc.
"""

import argparse
import email
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
READY = "READY"
_CUDA = re.compile(r"nvidia-|cuda-|triton|pytorch-triton")
_SMALL_CUDA = re.compile(r"nvidia-(cuda-runtime|cuda-cupti|nvtx)")
# From CUDA 13 on the parts are extras of one package.
_TOOLKIT = re.compile(r"cuda-toolkit\[([^\]]*)\]")
_SMALL_PARTS = {"cudart", "cupti", "nvtx"}
_ABSENT = re.compile(r"^\s*(\S+) => not found$", re.MULTILINE)
_UNDEFINED = re.compile(r"^undefined symbol: ([^\s,]+)", re.MULTILINE)
_BOUND = re.compile(r"^ *U ([^\s@]+)@(\S+)$", re.MULTILINE)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="of torch, such as 2.8.0")
    parser.add_argument("--into", type=Path, default=torches(), metavar="DIR", help="the environment is DIR/VERSION")
    args = parser.parse_args(argv)
    directory = args.into / args.version
    if not (directory / READY).exists():
        if lack := [program for program in ("gcc", "ldd", "nm") if shutil.which(program) is None]:
            print(f"not found: {', '.join(lack)} (on Debian: apt-get install gcc libc6-dev)", file=sys.stderr)
            return 2
        install(args.version, directory)
    print(f"torch {args.version}: {directory}/bin/python")
    return 0


def torches() -> Path:
    """The folder with an environment for each version."""
    return Path(os.environ.get("PACELINE_TORCHES") or Path.home() / ".cache" / "paceline-torch")


def python_of(version: str) -> Path | None:
    """The interpreter that has this torch; None where it is not installed, or not yet."""
    directory = torches() / version
    return directory / "bin" / "python" if (directory / READY).exists() else None


def installed() -> list[str]:
    """Versions that are ready for use."""
    return [stamp.parent.name for stamp in torches().glob(f"*/{READY}")]


def install(version: str, directory: Path, interpreter: str | Path = sys.executable) -> None:
    """Make the environment of this Python. It is stamped as ready once two of its ranks have summed a tensor."""
    shutil.rmtree(directory, ignore_errors=True)
    # Its pip is the one that runs this: a Python that was unpacked may have none.
    subprocess.run([interpreter, "-m", "venv", "--without-pip", directory], check=True)
    python = directory / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        # Three signs, so that a build for CPUs alone ("2.13.0+cpu") that lies on the machine is not taken for it.
        pip(python, "download", "--no-deps", "--dest", folder, f"torch==={version}")
        (wheel,) = Path(folder).iterdir()
        required = requirements_of(wheel)
        needed = [*without_cuda(required), *paceline_requirements(REPOSITORY / "pyproject.toml")]
        pip(python, "install", *needed, *small_cuda(required))
        # Last, because pip complains of what an installed torch lacks.
        pip(python, "install", "--no-deps", wheel)
    (libraries,) = directory.glob("lib/python*/site-packages/torch/lib")
    stand_in(libraries)
    check(python)
    (directory / READY).write_text(f"{version}\n")


def check(python: Path) -> None:
    """Sum a tensor over two ranks.

    Raises:  subprocess.CalledProcessError: this torch cannot
    """
    ranks = [
        python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        Path(__file__).with_name("two_ranks.py"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(ranks, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=300)


def pip(python: Path, verb: str, *argv: str | Path) -> None:
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-cache-dir")
    # The version is the caller's choice, so a cap in this machine's configuration of pip does not count.
    environment = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    subprocess.run([sys.executable, "-m", "pip", "--python", python, verb, *quiet, *argv], env=environment, check=True)


def requirements_of(wheel: Path) -> list[str]:
    """What a wheel's metadata requires."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])


def without_cuda(required: Iterable[str]) -> list[str]:
    """What torch needs on a machine without a GPU, of what its metadata names."""
    return [text for text in required if not _CUDA.match(text) and "extra ==" not in text]


def small_cuda(required: Iterable[str]) -> list[str]:
    """The CUDA libraries that are installed as they are: torch calls them even where there is no GPU."""
    found = []
    for text in required:
        if toolkit := _TOOLKIT.match(text):
            parts = sorted(_SMALL_PARTS.intersection(toolkit[1].split(",")))
            found.append(f"cuda-toolkit[{','.join(parts)}]{text[toolkit.end() :]}")
        elif _SMALL_CUDA.match(text):
            found.append(text)
    return found


def paceline_requirements(pyproject: Path) -> list[str]:
    """What paceline, its demo and its tests need."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    tests = [text for text in extras["dev"] if text.startswith(("hypothesis", "pytest"))]
    return [*project["dependencies"], *extras["demo"], *tests]


def stand_in(libraries: Path) -> None:
    """Compile the symbols that the linker misses into one library, and give it the name of each library that it misses."""
    absent, undefined = missing(output("ldd", "-r", libraries / "libtorch_python.so"))
    if not absent:
        return
    wanted = nodes(output("nm", "-D", "--undefined-only", *libraries.glob("lib*.so")))
    source, script = stand_in_source({name: wanted.get(name, "") for name in undefined})
    library = libraries / "libstand_in.so"
    with tempfile.TemporaryDirectory() as folder:
        code, versions = Path(folder) / "stand_in.c", Path(folder) / "versions.map"
        code.write_text(source)
        versions.write_text(script)
        options = ["-shared", "-fPIC", "-Wl,-soname,libstand_in.so", f"-Wl,--version-script={versions}"]
        subprocess.run(["gcc", *(options if script else options[:-1]), code, "-o", library], check=True)
    for name in absent:
        (libraries / name).symlink_to(library.name)


def output(*argv: str | Path) -> str:
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout


def missing(ldd: str) -> tuple[list[str], list[str]]:
    """Libraries that were not found and symbols that are undefined without them, from `ldd -r`. Python's own are in the interpreter."""
    undefined = {name for name in _UNDEFINED.findall(ldd) if not name.startswith(("Py", "_Py"))}
    return sorted(set(_ABSENT.findall(ldd))), sorted(undefined)


def nodes(nm: str) -> dict[str, str]:
    """Symbol -> the version node that it is bound to, from `nm -D`. `ldd` does not tell the node of each."""
    return dict(_BOUND.findall(nm))


def stand_in_source(symbols: Mapping[str, str]) -> tuple[str, str]:
    """C code that defines each symbol as a function that aborts, and the linker's script that puts it into its version node, if any."""
    code = "".join(f"void {name}(void) {{ abort(); }}\n" for name in symbols)
    names: dict[str, list[str]] = {}
    for name, node in symbols.items():
        if node:
            names.setdefault(node, []).append(name)
    script = "".join(f"{node} {{ {'; '.join(inside)}; }};\n" for node, inside in names.items())
    return "#include <stdlib.h>\n" + code, script


if __name__ == "__main__":
    sys.exit(main())
