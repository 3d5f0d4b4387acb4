"""A library that stands in for the GPU and NCCL of an installed CUDA build of torch: NCCL jobs of several ranks on a CPU.

    python tests/torches/build_fake_gpu.py 2.15.0        builds it, prints the variables that a job needs

The job's collectives meet, hang and miss ranks as torch's own ProcessGroupNCCL, watchdog and flight recorder show them; what it cannot
show stands in the first lines of fake_gpu/cuda.cpp and fake_gpu/nccl.cpp. The library lies in the environment of its torch (see
install_torch.py), named by what it is made of. It needs g++.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from install_torch import output, torches

SOURCES = Path(__file__).with_name("fake_gpu")
_FLAGS = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-fvisibility=hidden")
# torch loads the driver by this name; what was preloaded under it is found.
_NAME = "-Wl,-soname,libcuda.so.1"
_DRIVER = re.compile(rb"\0(cu[A-Z][A-Za-z0-9]+(?:_v\d)?)(?=\0)")
_BLAS = re.compile(r"\b(cublas\w+)")


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print("\n".join(f"export {name}={value}" for name, value in nccl_environment(sys.argv[1]).items()))
    except LookupError as lack:
        print(lack, file=sys.stderr)
        return 2
    return 0


def nccl_environment(version: str) -> dict[str, str]:
    """The variables with which a job of this torch finds sixteen GPUs and NCCL.

    Raises:  LookupError: the torch is not installed, has no CUDA, or there is no g++
    """
    return {"LD_PRELOAD": str(library(version))}


def reason_to_skip(version: str) -> str:
    """Why this torch has no stand-in here; empty where it has."""
    try:
        library(version)
    except LookupError as lack:
        return str(lack)
    return ""


def library(version: str) -> Path:
    """The library for this torch, built where it is not there yet.

    Raises:  LookupError: as in nccl_environment
    """
    environment = torches() / version
    if not (environment / "READY").exists():
        raise LookupError(f"torch {version} is not installed: make torch-{version}")
    libraries = next(environment.glob("lib/python*/site-packages/torch/lib"))
    headers = next(environment.glob("lib/python*/site-packages/nvidia/*/include/cuda_runtime_api.h"), None)
    if headers is None or not (libraries / "libc10_cuda.so").exists():
        raise LookupError(f"torch {version} has no CUDA")
    if shutil.which("g++") is None or shutil.which("nm") is None:
        raise LookupError("no g++ and nm (on Debian: apt-get install g++)")
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(SOURCES.rglob("*.[ch]*")):
        digest.update(path.read_bytes())
    built = environment / "fake_gpu" / f"{digest.hexdigest()[:12]}.so"
    if not built.exists():
        built.parent.mkdir(exist_ok=True)
        build(libraries, headers.parent, built)
    return built


def build(libraries: Path, headers: Path, built: Path) -> None:
    """Compile the sources, and a function for each one that they leave out of those that this torch asks for."""
    with tempfile.TemporaryDirectory(dir=built.parent) as folder:
        others, result = Path(folder) / "others.cpp", Path(folder) / "result.so"
        others.write_text(functions_that_succeed(names_of_driver(libraries) | names_of_blas(libraries)))
        include = [f"-I{SOURCES}", f"-isystem{headers}"]
        command = ["g++", *_FLAGS, _NAME, *include, *sorted(SOURCES.glob("*.cpp")), others, "-o", result, "-ldl"]
        subprocess.run(command, check=True)
        # At once, because several jobs may build it.
        os.replace(result, built)


def names_of_driver(libraries: Path) -> set[str]:
    """Functions of the driver that torch looks up by name: they are strings in these two."""
    texts = [(libraries / name).read_bytes() for name in ("libc10_cuda.so", "libcaffe2_nvrtc.so")]
    return {name.decode() for text in texts for name in _DRIVER.findall(text)}


def names_of_blas(libraries: Path) -> set[str]:
    """Functions of cuBLAS that torch is linked to."""
    return set(_BLAS.findall(output("nm", "-D", "--undefined-only", *libraries.glob("libtorch*.so"))))


def functions_that_succeed(names: Iterable[str]) -> str:
    """Code of functions that return 0, which is success for the driver and for cuBLAS. One of the sources' own goes before it."""
    weak = 'extern "C" __attribute__((weak, visibility("default")))'
    return "".join(f"{weak} int {name}() {{ return 0; }}\n" for name in sorted(names))


if __name__ == "__main__":
    sys.exit(main())
