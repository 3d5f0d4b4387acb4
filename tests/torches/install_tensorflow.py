"""TensorFlow and JAX in an environment of their own, so that paceline can be tried on them: `python tests/torches/install_tensorflow.py`.

The environment is 1.9 GB and takes one to four minutes. It lies below $PACELINE_TENSORFLOWS (default ~/.cache/paceline-tensorflow), named
by what it is made of, so that another requirement is another environment. It has no paceline: ranks run in it (PYTHON_EXEC), and need
none. An installation that was interrupted starts anew.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = ("tensorflow-cpu>=2.18,<2.22", "jax>=0.5,<0.11")
# It requires the package tensorflow, which pip would lay over tensorflow-cpu: 600 MB that bring nothing.
WITHOUT_DEPENDENCIES = ("tf-keras>=2.18,<2.22",)
_READY = "READY"


def main() -> int:
    directory = environment()
    if not (directory / _READY).exists():
        install(directory)
    print(f"TensorFlow: {directory}/bin/python")
    return 0


def environment() -> Path:
    """The folder of the environment."""
    named = repr((REQUIREMENTS, WITHOUT_DEPENDENCIES, sys.version_info[:2]))
    root = Path(os.environ.get("PACELINE_TENSORFLOWS") or Path.home() / ".cache" / "paceline-tensorflow")
    return root / hashlib.sha256(named.encode()).hexdigest()[:12]


def python() -> Path | None:
    """The interpreter that has TensorFlow; None where it is not installed, or not yet."""
    directory = environment()
    return directory / "bin" / "python" if (directory / _READY).exists() else None


def install(directory: Path) -> None:
    """Make the environment. It is stamped as ready once TensorFlow was imported."""
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    interpreter = directory / "bin" / "python"
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    subprocess.run([*pip, *REQUIREMENTS], check=True)
    subprocess.run([*pip, "--no-deps", *WITHOUT_DEPENDENCIES], check=True)
    subprocess.run([interpreter, "-c", "import jax, tensorflow, tf_keras"], check=True, stderr=subprocess.DEVNULL)
    (directory / _READY).touch()


if __name__ == "__main__":
    sys.exit(main())
