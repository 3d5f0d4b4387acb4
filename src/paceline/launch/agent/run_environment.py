"""What the ranks of a host run with: versions, variables, the state of the code. Two runs are compared by it."""

import re
from importlib import metadata
from pathlib import Path
from typing import Any

from paceline.facts import Program
from paceline.launch.agent.host_attempt import HostIdentity
from paceline.probes.environment import relevant_variables
from paceline.probes.git_state import git_state
from paceline.probes.gpus import read_gpus, visible_gpus
from paceline.probes.instance import read_instance
from paceline.probes.torch_version import read_torch

_MOST_DIRTY = 50
_CUDA = re.compile(r"^cuda\b.*=\s*['\"]([\d.]+)['\"]", re.MULTILINE)
_DRIVER = re.compile(r"Kernel Module(?: for \S+)?\s+([\d.]+)")


def environment_document(identity: HostIdentity, directory: Path | None) -> dict[str, Any]:
    """The content of environment.json. `directory`: of the job's code, at whose files git looks, for up to some seconds; None: it does not.

    No program of the job is started, and nothing is locked or written.
    """
    torch = read_torch(identity.python)
    commit, dirty = git_state(directory) if directory is not None else (None, ())
    return {
        "schema": "paceline.environment/1",
        "host": identity.name,
        "python": torch.python_version,
        "torch": torch.version,
        "cuda": cuda_version(torch.version),
        "driver": driver_version(_text(Path("/proc/driver/nvidia/version"))),
        "commit": commit,
        "dirty": list(dirty[:_MOST_DIRTY]),
        "dirty_count": len(dirty),
        **read_instance(identity.environ),
        "variables": relevant_variables(identity.environ),
    }


def code_directory(program: Program) -> Path:
    """The directory of the job's code: that of the script, or the one in which the agent stands."""
    directory = Path(program.target).parent
    return directory if directory.is_dir() else Path.cwd()


def gpus_of_ranks(visible_devices: str | None) -> tuple[tuple[str, int | None], ...]:
    """Id and driver's number of the GPUs that ranks with this CUDA_VISIBLE_DEVICES see, in their order; (): none, or not known.

    A slice of a GPU has no number: what is measured of the GPU is of all its slices.
    """
    gpus = read_gpus().gpus or ()
    numbers = {gpu.uuid: gpu.index for gpu in gpus}
    return tuple((uuid, numbers.get(uuid)) for uuid in visible_gpus(gpus, visible_devices).uuids)


def cuda_version(torch_version: str | None) -> str | None:
    """The CUDA that this interpreter's torch was built for, from a file of it; None: none, or another interpreter has torch."""
    try:
        torch = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        return None
    if torch.version != torch_version:
        return None
    match = _CUDA.search(_text(Path(str(torch.locate_file("torch/version.py")))))
    return match[1] if match else None


def driver_version(text: str) -> str | None:
    """The version in /proc/driver/nvidia/version."""
    match = _DRIVER.search(text)
    return match[1] if match else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
