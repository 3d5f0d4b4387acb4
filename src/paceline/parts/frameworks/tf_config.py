"""TF_CONFIG, in which the processes of a TensorFlow job find each other: made for each rank, or checked where the user has made it. Pure.

Source:  tensorflow 2.21 tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py;
         aws/sagemaker-tensorflow-training-toolkit, training.py
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.errors import UsageError
from paceline.facts import Job, Placement, ProgramKind

VARIABLE, ADDRESSES_VARIABLE = "TF_CONFIG", "PACELINE_RANK_ADDRESSES"
MULTI_WORKER_MIRRORED, PARAMETER_SERVER = "multi_worker_mirrored", "parameter_server"
_MIRRORED_PORT, _WORKER_PORT, _SERVER_PORT = 8890, 2222, 2223
# In the order of the ranks. A server that is no rank has no place among them.
_RANKED = ("chief", "master", "worker", "ps")
_EVALUATOR = "evaluator"
# Linux takes no longer variable than 128 KiB.
_LONGEST_VARIABLE = 100_000


def wanted_ports(job: Job) -> tuple[int, ...]:
    """The ports that a host's ranks should listen on, SageMaker's where they are free; 0: any port; empty: the program is not Python."""
    if job.tf_config == MULTI_WORKER_MIRRORED:
        return tuple(_MIRRORED_PORT + local_rank for local_rank in range(job.ranks_per_host))
    if job.tf_config == PARAMETER_SERVER:
        return _WORKER_PORT, _SERVER_PORT
    # A script may train with smdistributed.dataparallel.tensorflow, whose ranks find each other by `address_variables`.
    return () if job.program.kind is ProgramKind.EXECUTABLE else (0,) * job.ranks_per_host


def address_variables(
    placements: Sequence[Placement], addresses: Mapping[str, str], rank: int, world_size: int
) -> dict[str, str]:
    """The variables in which the ranks find each other without TF_CONFIG; none if a host keeps no ports, or for very many ranks.

    paceline's module for TensorFlow, JAX and Keras read them. A rank that is alone gets none: JAX may know of others, as on Slurm where
    each task is a job of its own.

    Source:  keras 3.15 keras/src/distribution/distribution_lib.py, `initialize`
    """
    if world_size == 1 or any(len(one.ports) < one.ranks for one in placements):
        return {}
    found = [_at(one, local_rank, addresses) for one in placements for local_rank in range(one.ranks)]
    text = json.dumps(found)
    if len(text) > _LONGEST_VARIABLE:
        return {}
    return {
        ADDRESSES_VARIABLE: text,
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": found[0],
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(world_size),
        "KERAS_DISTRIBUTION_PROCESS_ID": str(rank),
    }


def _at(placement: Placement, place: int, addresses: Mapping[str, str]) -> str:
    return f"{addresses.get(placement.host, placement.host)}:{placement.ports[place]}"


def tf_config(form: str, placements: Sequence[Placement], rank: int, addresses: Mapping[str, str]) -> str:
    """The value of TF_CONFIG for a rank. `placements` are in node-rank order.

    `addresses`: host -> its address, for hosts whose names the resolver does not know.

    Holds:   every rank gets the same cluster; multi_worker_mirrored: task index == rank
    Raises:  UsageError U57: a host keeps no port free
    """
    cluster = _cluster(form, placements, addresses)
    if form == MULTI_WORKER_MIRRORED:
        return _text(cluster, "worker", rank)
    return _text(cluster, "worker", rank - 1) if rank else _text(cluster, "chief", 0)


def server_config(placements: Sequence[Placement], host: str, addresses: Mapping[str, str]) -> str | None:
    """The value of TF_CONFIG for the parameter server of `host`; None: a job of one host has none.

    Raises:  UsageError U57: a host keeps no port free
    """
    cluster = _cluster(PARAMETER_SERVER, placements, addresses)
    names = [placement.host for placement in placements]
    return _text(cluster, "ps", names.index(host)) if "ps" in cluster else None


def _cluster(form: str, placements: Sequence[Placement], addresses: Mapping[str, str]) -> dict[str, list[str]]:
    def at(placement: Placement, place: int) -> str:
        if place >= len(placement.ports):
            raise UsageError(
                "U57",
                f"{placement.host} keeps no port free for rank {placement.first_rank}",
                saw=f"--tf-config {form} on this host; none, or another number of ranks, on {placement.host}",
                next=f"paceline run --tf-config {form} ... on every host",
            )
        return _at(placement, place, addresses)

    if form == MULTI_WORKER_MIRRORED:
        return {"worker": [at(one, local_rank) for one in placements for local_rank in range(one.ranks)]}
    # SageMaker says master, which TensorFlow's ParameterServerStrategy refuses; tf.estimator, which took it, is gone since 2.16.
    cluster = {"chief": [at(placements[0], 0)]}
    if len(placements) > 1:
        cluster |= {"ps": [at(one, 1) for one in placements], "worker": [at(one, 0) for one in placements[1:]]}
    return cluster


def _text(cluster: Mapping[str, Sequence[str]], kind: str, index: int) -> str:
    return json.dumps({"cluster": cluster, "environment": "cloud", "task": {"index": index, "type": kind}})


def objection(text: str, placements: Sequence[Placement], host: str) -> UsageError | None:
    """What is wrong with a TF_CONFIG that the user has set on `host`; None: the ranks of `placements` are the tasks that it names."""
    own = next(placement for placement in placements if placement.host == host)
    world_size = sum(placement.ranks for placement in placements)
    try:
        names, task = _read(text)
    except (ValueError, RecursionError) as error:
        return _wrong(f"TF_CONFIG on {host} cannot be read: {error}", text[:200], "unset TF_CONFIG")
    if own.ranks > 1:
        return _wrong(
            f"all {own.ranks} ranks of {host} would be the same task of TF_CONFIG",
            f"{' '.join(map(str, task))} for each of them",
            "unset TF_CONFIG, or one rank per host: --nproc-per-node 1",
        )
    if len(names) > world_size:
        return _wrong(
            f"TF_CONFIG on {host} names {len(names)} tasks, and this job has {world_size} ranks: TensorFlow would wait for ever",
            ", ".join(f"{kind} {index}" for kind, index in names[:8]) + (", ..." if len(names) > 8 else ""),
            "unset TF_CONFIG, or start as many ranks as it names",
        )
    rank = own.first_rank
    expected = names[rank] if rank < len(names) else (_EVALUATOR, rank - len(names))
    if task == expected:
        return None
    return _wrong(
        f"rank {rank} on {host} is {task[0]} {task[1]} in its TF_CONFIG, and must be {expected[0]} {expected[1]}",
        f"{len(names)} tasks in its cluster: chief, workers, ps in the order of the ranks, then evaluators",
        f"unset TF_CONFIG, or correct its task: {json.dumps({'type': expected[0], 'index': expected[1]})}",
    )


def own_port(text: str) -> int | None:
    """The port on which the task of a TF_CONFIG without `objection` listens; None: none, as an evaluator, or its address names none."""
    config = json.loads(text)
    kind, index = config["task"]["type"], config["task"]["index"]
    if kind == _EVALUATOR:
        return None
    port = config["cluster"][kind][index].rpartition(":")[2]
    return int(port) if port.isascii() and port.isdecimal() and 0 < int(port) < 65536 else None


def _read(text: str) -> tuple[list[tuple[str, int]], tuple[str, int]]:
    """The tasks of the cluster in the order of the ranks, and this process's own task.

    Raises:  ValueError
    """
    config = json.loads(text)
    cluster, task = (config.get(name) if isinstance(config, dict) else None for name in ("cluster", "task"))
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise ValueError("it has no cluster or no task")
    kind, index = task.get("type"), task.get("index")
    if not isinstance(kind, str) or not isinstance(index, int):
        raise ValueError(f"its task is {json.dumps(task)[:100]}, not a type and an index")
    if unknown := sorted(set(cluster) - {*_RANKED, _EVALUATOR}):
        raise ValueError(f"its cluster has tasks of type {unknown[0]!r}")
    if wrong := [one for one in cluster.values() if not _is_addresses(one)]:
        raise ValueError(f"{json.dumps(wrong[0])[:100]} is no list of addresses")
    return [(name, number) for name in _RANKED for number in range(len(cluster.get(name, ())))], (kind, index)


def _is_addresses(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _wrong(what: str, saw: str, next: str) -> UsageError:
    return UsageError("U57", what, saw=saw, next=next)
