"""Collects the facts that the checks need from a job's arguments: asks the catalogue, counts local channels, reads the script as text."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from paceline.catalog.lookup import find_accelerator, find_machine_type
from paceline.catalog.types import MachineType
from paceline.contract.channels import SHARDED_BY_KEY, keys
from paceline.errors import UsageError
from paceline.facts import Channel, Program
from paceline.job_file import JobFile
from paceline.probes.host_before import read_host
from paceline.recording.runs import runs_root
from paceline.rules.host_facts import HostFacts
from paceline.rules.job_facts import BeforeRun, ChannelKeys
from paceline.rules.sources import read_source, read_sources

# Instance types of SageMaker's local mode. They mean this machine.
THIS_MACHINE = ("local", "local_gpu")


def before_of(
    *,
    engine: str,
    instance_type: str | None = None,
    machine: MachineType | None = None,
    hosts: int = 1,
    ranks_per_host: int | str | None = None,
    gpus_per_host: int | None = None,
    program: Program | None = None,
    directory: Path | None = None,
    channels: Iterable[Channel] = (),
    key_counts: Mapping[str, int] | None = None,
    **more: Any,
) -> BeforeRun:
    """The job as the checks see it; `more`: further fields of BeforeRun, taken as they are.

    `machine`: one of the user's own, else the catalogue is asked. `ranks_per_host`: as --nproc-per-node has it. `directory`: that of the
    code. `key_counts`: name of a channel that is not local -> its keys. What cannot be read stays unknown: others refuse it.
    """
    if machine is None and instance_type is not None and instance_type not in THIS_MACHINE:
        machine = find_machine_type(instance_type)
    gpus = gpus_per_host if gpus_per_host is not None else gpu_count(machine)
    script, path, imported = read_sources(program, directory)
    return BeforeRun(
        engine=engine,
        instance_type=instance_type,
        machine=machine,
        hosts=hosts,
        ranks_per_host=_ranks(ranks_per_host, gpus, machine),
        gpus_per_host=gpus,
        channels=tuple(_counted(channel, hosts, key_counts or {}) for channel in channels),
        arguments=program.arguments if program is not None else (),
        script=script,
        script_path=path,
        imported=imported,
        requirements=read_source(directory / "requirements.txt") if directory is not None else None,
        **more,
    )


def this_host(file: JobFile, environ: Mapping[str, str]) -> HostFacts:
    """This machine as the host of a job."""
    directory = Path(file.run_dir or runs_root(environ=environ)).expanduser()
    ports = [file.job.agents_port] if file.job.agents_port else []
    read = read_host(os.uname().nodename, directory, ports)
    return msgspec.convert({**read, "clock_offset_seconds": 0.0}, HostFacts, str_keys=True)


def gpu_count(machine: MachineType | None) -> int | None:
    """Number of GPUs of one host of this type; None if it is unknown or if torch does not see the accelerators as GPUs."""
    if machine is None or (machine.accelerator is None and machine.accelerator_count is None):
        return None
    if machine.accelerator is None:
        return machine.accelerator_count
    found = find_accelerator(machine.accelerator)
    name = found.name if found is not None else machine.accelerator
    return machine.accelerator_count or None if name.startswith(("NVIDIA", "AMD")) else None


def _ranks(asked: int | str | None, gpus: int | None, machine: MachineType | None) -> int | None:
    if asked is None or isinstance(asked, int):
        return asked
    if asked.isdigit():
        return int(asked)
    cpus = machine.vcpu_count if machine is not None else None
    return {"gpu": gpus or None, "cpu": cpus, "auto": gpus or (cpus if gpus == 0 else None)}.get(asked)


def _counted(channel: Channel, hosts: int, key_counts: Mapping[str, int]) -> ChannelKeys:
    count = key_counts.get(channel.name)
    source = channel.source.removeprefix("file://")
    local = "://" not in source and channel.data_type == "S3Prefix"
    # A directory may have a million files, so they are counted only if a check needs the number.
    if count is None and local and hosts > 1 and channel.distribution == SHARDED_BY_KEY and Path(source).exists():
        try:
            count = len(keys(Channel(name=channel.name, source=source)))
        except UsageError:
            count = None
    return ChannelKeys(name=channel.name, distribution=channel.distribution, key_count=count)
