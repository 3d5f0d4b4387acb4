"""Install what public training scripts need into the environment of the Python that runs this; torch and paceline are there already.

PyPI's torchvision is built for CUDA. Beside a torch without CUDA its compiled operators do not load, and then its import fails, because
it describes two of them to torch all the same. Image folders, digits and models need none: the two are declared, without code.
"""

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("wild_requirements.txt")
# The release of torchvision that belongs to torch 2.N is 0.(N + 15).
OFFSET = 15
MARK = "# declared, without code, beside a torch without CUDA"
DECLARED = f"""

{MARK}
if not _has_ops():
    for _name in ("nms", "qnms"):
        torch.library.define("torchvision::" + _name, "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def main() -> int:
    version = importlib.metadata.version("torch")
    # timm and others would bring the newest torchvision, and that a torch of its own.
    minor = int(version.split(".")[1]) + OFFSET
    pip("--no-deps", f"torchvision==0.{minor}.*")
    pip(f"torch=={version}", "-r", str(REQUIREMENTS))
    declare_operators()
    return 0


def pip(*argv: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--no-input", "install", *argv], check=True)


def declare_operators() -> None:
    """Once; a torchvision whose operators load is not touched by it."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise RuntimeError("torchvision was not installed")
    extension = Path(spec.origin).with_name("extension.py")
    if MARK not in extension.read_text():
        extension.write_text(extension.read_text() + DECLARED)


if __name__ == "__main__":
    sys.exit(main())
