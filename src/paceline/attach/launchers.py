"""Which program a command line runs, and which launcher of training jobs that is. Pure."""

import os
import re
from collections.abc import Sequence

SPAWN = "torch.multiprocessing.spawn"
"""The word for a process whose children multiprocessing started, each with a new interpreter."""
FORK = "multiprocessing"
"""The word for a process whose children are forks of it."""
PYTHONS = ("python", "pypy")
# Programs and modules by their names, files of modules by the end of their paths. A Python runs them, or their files are executed.
_LAUNCHERS = {
    "torchrun": "torchrun torch.distributed.run torch.distributed.launch torch/distributed/run.py torch/distributed/launch.py",
    "accelerate": "accelerate accelerate-launch accelerate.commands.launch accelerate.commands.accelerate_cli "
    "accelerate/commands/launch.py",
    "deepspeed": "deepspeed deepspeed.launcher.runner deepspeed.launcher.launch deepspeed/launcher/runner.py deepspeed/launcher/launch.py",
    "Slurm": "srun slurmstepd sbatch salloc",
    "MPI": "mpirun mpirun.openmpi mpirun.mpich mpiexec mpiexec.openmpi mpiexec.mpich mpiexec.hydra "
    "orterun orted prterun prted prte hydra_pmi_proxy hydra_bstrap_proxy",
    "Ray": "raylet",
    "Jupyter": "ipykernel_launcher ipykernel jupyter jupyter-lab jupyter-notebook jupyter-server jupyterhub-singleuser",
    "paceline": "paceline",
}
_WORDS = {name: word for word, names in _LAUNCHERS.items() for name in names.split()}
# A notebook's kernel and a worker of Ray may be ranks themselves.
_MAY_BE_RANKS = ("Jupyter", "Ray")
# Single letters may stand together, and what follows m or c may be part of the word.
_CODE_OR_MODULE = re.compile(r"-[bBdEhiIOPqsSuvx]*([cm])(.*)", re.DOTALL)
_TAKES_A_VALUE = ("-W", "-X", "--check-hash-based-pycs")
# Modules of ours that no rank runs; of the first some start ranks.
_AGENTS = ("paceline.launch.", "paceline.parts.engines.")
_TOOLS = (
    "paceline.cli.",
    "paceline.recording.",
    "paceline.parts.plan.",
    "paceline.parts.web.",
    "paceline.parts.resume.agent.",
)
_FORK_SERVER = "paceline/worker/fork_server.py"


def program_of(command: Sequence[str]) -> str:
    """The script, the module or the program that a command line runs; "-c" for code, empty for none.

    Holds:   program_of(["/usr/bin/python3.11", "-u", "-m", "torch.distributed.run", "t.py"]) == "torch.distributed.run"
    """
    if not command or not os.path.basename(command[0]).startswith(PYTHONS):
        return command[0] if command else ""
    words = iter(command[1:])
    for word in words:
        if ends := _CODE_OR_MODULE.fullmatch(word):
            return "-c" if ends[1] == "c" else ends[2] or next(words, "")
        if word in _TAKES_A_VALUE:
            next(words, "")
        elif not word.startswith("-"):
            return word
    return ""


def launcher_of(command: Sequence[str]) -> str:
    """The word for a launcher of training jobs; empty if the command line runs none.

    Holds:   launcher_of(["python", "/home/you/torchrun/train.py"]) == ""
    """
    program = program_of(command)
    if program == "-c":
        # So does paceline run its own programs with a Python that may not know -P.
        return "paceline" if any("runpy.run_module('paceline.launch." in word for word in command[:8]) else ""
    # Slurm and Ray write into their argv what they do: "slurmstepd: [4711.0]", "ray::TrainWorker.run()".
    if program.startswith(("slurmstepd:", "ray::")):
        return "Slurm" if program.startswith("slurmstepd:") else "Ray"
    if program.startswith(_AGENTS):
        return "paceline"
    of_a_file = "/".join(program.split("/")[-3:])
    return _WORDS.get(os.path.basename(program)) or _WORDS.get(of_a_file, "")


def is_never_a_rank(command: Sequence[str]) -> bool:
    """Whether a command line runs a launcher, which has its ranks below it."""
    return launcher_of(command) not in ("", *_MAY_BE_RANKS)


def is_helper(command: Sequence[str]) -> bool:
    """Whether a rank, or paceline, started it for itself. It may outlive the rank."""
    program = program_of(command)
    return (
        program.startswith(_TOOLS)
        or program.endswith("torch/_inductor/compile_worker/__main__.py")
        or any("multiprocessing.resource_tracker import main" in word for word in command[:8])
    )


def is_spawned(command: Sequence[str]) -> bool:
    """Whether multiprocessing started this interpreter for a function of its parent, or a fork of it did."""
    return any("multiprocessing.spawn import spawn_main" in word for word in command[:8])


def is_fork_server(command: Sequence[str]) -> bool:
    """Whether it is what paceline forks ranks from, or one of those ranks."""
    return program_of(command).endswith(_FORK_SERVER)
