"""The torch of a Python interpreter: its version from metadata and, on request, its features from a process of its own."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from paceline.own_program import code_argv

ASK_WITH = "paceline env --torch"
_METADATA_SECONDS = 10
_FEATURES_SECONDS = 120
TRIED = ((2, 4), (2, 15))
"""The oldest and the newest minor release that paceline was run on; see docs/limits.md."""
_RELEASE = re.compile(r"(\d+)\.(\d+)(\.\d+)?(\.post\d+)?(\+(cpu|cu|rocm|xpu)\w*(\.\w+)*)?")

# Purpose of each feature, in the order in which it is shown.
FEATURES = {
    "process groups": "ranks can be recognised when they join one",
    "flight recorder": "which collective of NCCL each rank is in",
    "flight recorder of gloo": "the same of gloo; without it stacks and CPU time tell who waits",
    "worker server": "a running rank can be asked from outside",
    "optimizer hook": "steps are counted without a change to the script",
    "Work.wait patch": "time spent waiting for collectives",
    "DDP logger": "exposed communication of DistributedDataParallel",
    "FSDP2": "fully_shard",
    "gloo": "collectives on CPUs",
    "nccl": "collectives on NVIDIA GPUs",
}

_METADATA_CODE = """
import importlib.metadata, json, platform, sys
try:
    version = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    version = None
print(json.dumps([version, platform.python_version(), sys.executable]))
"""

# Runs in the user's interpreter, with nothing of ours. One feature that raises does not hide the others.
_FEATURES_CODE = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
# As in a rank: an older flight recorder has no room unless it is given some.
os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
import torch
found = {}

def feature(name, look):
    try:
        found[name] = bool(look())
    except Exception:
        found[name] = False

def c10d():
    import torch._C._distributed_c10d as module
    return module

def work_wait():
    from torch._C._distributed_c10d import Work
    before = Work.wait
    Work.wait = lambda self, *args: before(self, *args)
    Work.wait = before
    return Work.wait is before

def ddp_logger():
    from torch.nn.parallel import DistributedDataParallel
    return hasattr(DistributedDataParallel, "_get_ddp_logging_data")

def fsdp2():
    from torch.distributed.fsdp import fully_shard
    return fully_shard

def optimizer_hook():
    from torch.optim.optimizer import register_optimizer_step_post_hook
    return register_optimizer_step_post_hook

feature("process groups", lambda: torch.distributed.is_available())
def offered():
    # A running rank is read through the worker server. torch 2.8 records gloo, and its server does not give that out.
    return getattr(c10d(), "_get_handler_names", lambda: ())()

def recorder_of_nccl():
    # Up to 2.4 as a pickle alone. From 2.15 on each backend has a recorder of its own, which fr_trace_json gives out by the backend's
    # name; fr_dump_file came with it.
    given_out = {"dump_nccl_trace_json", "dump_nccl_trace_pickle", "fr_dump_file"}
    return torch.distributed.is_nccl_available() and given_out & set(offered())

def recorder_of_gloo():
    if "fr_trace_json" not in offered():
        return False
    # One collective of a group of one, in memory only: the version does not tell whether the recorder records it.
    group = c10d().ProcessGroupGloo(c10d().HashStore(), 0, 1)
    group.allreduce([torch.ones(1)]).wait()
    return json.loads(c10d()._dump_fr_trace_json()).get("entries")

feature("flight recorder", recorder_of_nccl)
feature("flight recorder of gloo", recorder_of_gloo)
feature("worker server", lambda: hasattr(c10d(), "_WorkerServer"))
feature("optimizer hook", optimizer_hook)
feature("Work.wait patch", work_wait)
feature("DDP logger", ddp_logger)
feature("FSDP2", fsdp2)
feature("gloo", lambda: torch.distributed.is_gloo_available())
feature("nccl", lambda: torch.distributed.is_nccl_available())
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "found": found}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchInstall:
    """The torch of one Python."""

    python: str
    """Path of the Python."""
    python_version: str | None = None
    """Version of the Python."""
    version: str | None = None
    """Version of torch; None: not installed, or not known."""
    cuda: str | None = None
    """Version of CUDA that torch was built for."""
    reason: str = ""
    """Why the version is None."""
    features: dict[str, bool] | None = None
    """Feature -> whether this torch has it; None: not judged."""
    features_reason: str = ""
    """Why the features are not judged."""


def not_tried(version: str | None) -> str:
    """Says that nobody has run paceline on this torch; empty where somebody has, and where the version is not known.

    Holds:   not_tried("2.13.0+cu130") == ""; not_tried("2.15.0a0+git1f2e3d") names it, because a build between releases is like none
    """
    if version is None:
        return ""
    (oldest, newest), release = TRIED, _RELEASE.fullmatch(version)
    if release is not None and oldest <= (int(release[1]), int(release[2])) <= newest:
        return ""
    what = f"torch {version}" if release is not None else f"torch {version}, which is no release,"
    tried = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
    return f"{what} was never tried with paceline (releases {tried} were); what it does not show is not judged"


def read_torch(python: str | None = None) -> TorchInstall:
    """The torch of `python` (this interpreter), from package metadata alone; features are not judged."""
    if python is None or python == sys.executable:
        return _installed_here()
    answer, refused = _ask(python, _METADATA_CODE, _METADATA_SECONDS)
    if refused:
        return TorchInstall(python=python, reason=refused, features_reason=refused)
    version, python_version, _ = answer
    return _install(python, python_version, version)


def read_torch_features(python: str | None = None) -> TorchInstall:
    """The same with every feature judged, by importing torch in a new process of that interpreter; takes seconds."""
    install = read_torch(python)
    if install.version is None:
        return install
    answer, refused = _ask(install.python, _FEATURES_CODE, _FEATURES_SECONDS)
    if refused:
        return TorchInstall(
            python=install.python,
            python_version=install.python_version,
            version=install.version,
            features_reason=refused,
        )
    return TorchInstall(
        python=install.python,
        python_version=install.python_version,
        version=answer["version"],
        cuda=answer["cuda"],
        features={name: answer["found"][name] for name in FEATURES},
    )


def _installed_here() -> TorchInstall:
    try:
        version: str | None = metadata.version("torch")
    except metadata.PackageNotFoundError:
        version = None
    return _install(sys.executable, ".".join(str(part) for part in sys.version_info[:3]), version)


def _install(python: str, python_version: str, version: str | None) -> TorchInstall:
    missing = "" if version else f"torch is not installed for {python}"
    return TorchInstall(
        python=python,
        python_version=python_version,
        version=version,
        reason=missing,
        features_reason=missing or ASK_WITH,
    )


def _ask(python: str, code: str, timeout_seconds: float) -> tuple[Any, str]:
    """The last output of the code, as JSON, or why there is no answer."""
    try:
        done = subprocess.run(
            code_argv(python, code), capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
    except OSError as error:
        return None, f"{python}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return None, f"{python} did not answer within {timeout_seconds:.0f} s"
    if done.returncode != 0:
        said = done.stderr.strip().rpartition("\n")[2]
        # A program that is no Python repeats what it was asked, which says nothing.
        said = said if said and "importlib" not in said else f"it ended with {done.returncode} and is perhaps no Python"
        return None, f"{python}: {said}"
    # The user's own sitecustomize may have printed something before.
    last_line = done.stdout.strip().rpartition("\n")[2]
    try:
        return json.loads(last_line), ""
    except ValueError:
        return None, f"{python} is no Python: it answered {last_line[:60]!r}"
