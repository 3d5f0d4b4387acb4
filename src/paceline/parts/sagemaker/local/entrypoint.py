"""Finds the program to start on each host of a job, from the request alone. It has no side effects.

There are three forms: script mode (the hyperparameters sagemaker_program and sagemaker_submit_directory), an entry point in the request
(the v3 SDK's is `/bin/bash -c .../sm_train.sh`), and an entry point of paceline's own, which is run unchanged.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.catalog.lookup import find_machine_type

OWN_ENTRY = "paceline_entry.py"
_SWITCHES = (
    "sagemaker_mpi_enabled",
    "sagemaker_pytorch_ddp_enabled",
    "sagemaker_torch_distributed_enabled",
    "sagemaker_distributed_dataparallel_enabled",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryScript:
    """Script mode: the program below /opt/ml/code, the location of its archive, and the processes per host (None: not given).

    `distributed`: the request asks for a launcher. `instance_groups`: the groups whose hosts train together; () for all.
    """

    program: str
    archive: str
    distributed: bool
    processes: int | None
    instance_groups: tuple[str, ...]


def script_argv(request: Mapping[str, Any]) -> EntryScript | None:
    """Script mode from the hyperparameters; None if they do not ask for it."""
    wire = request.get("HyperParameters", {})
    program, archive = (_decoded(wire.get(key)) for key in ("sagemaker_program", "sagemaker_submit_directory"))
    if not program or not archive:
        return None
    processes = _decoded(wire.get("sagemaker_mpi_num_of_processes_per_host"))
    named = _decoded(wire.get("sagemaker_distribution_instance_groups"))
    return EntryScript(
        program=str(program),
        archive=str(archive),
        distributed=any(_decoded(wire.get(switch)) in (True, "true", "True") for switch in _SWITCHES),
        processes=int(processes) if str(processes or "").isdecimal() else None,
        instance_groups=tuple(map(str, named)) if isinstance(named, list) else (),
    )


def container_argv(request: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The request's own entry point with its arguments; None if it has none."""
    algorithm = request.get("AlgorithmSpecification", {})
    entry = algorithm.get("ContainerEntrypoint")
    return (*entry, *algorithm.get("ContainerArguments", ())) if entry else None


def processes_per_host(script: EntryScript, instance_type: str, most: int) -> int:
    """Ranks per host: the request's number, else the accelerators of the machine type up to `most`; 1 without a launcher.

    Holds:   a request that names no launcher gets 1, as in SageMaker
    """
    if not script.distributed:
        return 1
    if script.processes is not None:
        return max(script.processes, 1)
    machine = find_machine_type(instance_type)
    accelerators = machine.accelerator_count if machine is not None else 0
    return min(accelerators, most) if accelerators else most


def run_arguments(
    script: EntryScript,
    instance_type: str,
    *,
    base: str,
    code: str,
    runs: str,
    several: bool,
    port: int,
    most_processes: int,
) -> tuple[str, ...]:
    """The arguments of `paceline` on every host. `base` "" means the real /opt/ml."""
    argv = ["run", "--set", "progress=off", "--run-dir", runs, "--set", f"base_dir={base}" if base else "opt_ml=true"]
    argv += ["--source-dir", code, "--nproc-per-node", str(processes_per_host(script, instance_type, most_processes))]
    # With one host, the same option would set the store's port.
    argv += ["--master-port", str(port)] if several else []
    return (*argv, "--", script.program)


def _decoded(text: str | None) -> Any:
    """The value of an SDK's own hyperparameter. Most SDKs encode it as JSON, some as plain text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
