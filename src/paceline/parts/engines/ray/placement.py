"""Places a job's hosts on a Ray cluster and starts an actor on each. All actors are started together and ended together."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from paceline.errors import HostLost, PacelineError, UsageError
from paceline.launch.job.state import FIRST_NOTICE_SECONDS, NEXT_NOTICE_SECONDS
from paceline.parts.engines.ray import agent_actor
from paceline.parts.engines.ray.cluster import never_fits, own_actor_module
from paceline.parts.engines.ray.options import RayOptions

# On a loaded machine, a worker process of Ray takes many seconds to start. After this time it counts as failed.
ARRIVE_SECONDS = 120.0
_SLICE_SECONDS = 0.25
_LEAVE_SECONDS = 8.0
# Enough threads for all requests that can be open at the same time, including those at the end of a job.
_THREADS = 8

Asked = Sequence[int]
"""The signals that requested the end, in order. The list grows while the job runs."""


class Cancelled(Exception):
    """The end was requested before the agents were started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedHost:
    """One host of the job on the cluster."""

    rank: int
    """The host's node rank."""
    actor: Any
    """Ray's handle of the actor that runs the host's agent."""
    node: str
    """Address of the host's node."""
    port: int
    """A port that was free on the node when the actor started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """The hosts to place on the cluster."""

    options: RayOptions
    """The cluster, and the resources that each host takes."""
    hosts: int
    """Number of hosts."""
    code: bytes | None
    """The archive of the job's code; None: no code is shipped."""
    wait_seconds: float
    """How long to wait for missing nodes."""


@contextmanager
def placed(
    ray: Any, wanted: PlacementRequest, asked: Asked, say: Callable[[str], None]
) -> Iterator[tuple[PlacedHost, ...]]:
    """The placed hosts, in order of node rank, with the code unpacked. Their actors end with the block.

    Raises:  UsageError E33: the cluster can never hold the hosts; E11: versions differ
             HostLost E17: a node did not start its actor; Cancelled: a signal came before all actors were started
    """
    _fits(ray, wanted, asked, say)
    from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

    bundles = [dict(wanted.options.bundle) for _ in range(wanted.hosts)]
    group = placement_group(bundles, strategy=wanted.options.strategy_for(wanted.hosts))
    actors: list[Any] = []
    try:
        _reserved(ray, group, wanted, asked, say)
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        where = placement_group_table(group)["bundles_to_node_id"]
        nodes = [addresses.get(where[index], where[index]) for index in range(wanted.hosts)]
        actors += actors_in(ray, group, wanted.options, wanted.hosts, agent_actor, agent_actor.AgentActor)
        yield _arrived(ray, actors, nodes, wanted, asked)
    finally:
        _leave(ray, actors)
        with suppress(ray.exceptions.RayError):
            remove_placement_group(group)


def _fits(ray: Any, wanted: PlacementRequest, asked: Asked, say: Callable[[str], None]) -> None:
    """Wait until the cluster has enough nodes to hold the job."""
    waiting = _Waiting(say)
    while refusal := never_fits(wanted.options, wanted.hosts, ray.nodes()):
        if waiting.seconds >= wanted.wait_seconds:
            raise refusal
        waiting.on(f"the Ray cluster cannot hold the job now: {refusal.saw}")
        _pause(asked)


def _reserved(ray: Any, group: Any, wanted: PlacementRequest, asked: Asked, say: Callable[[str], None]) -> None:
    """Wait until the placement group has its nodes: other jobs may use them, or Ray has not noticed yet that a node is lost."""
    waiting = _Waiting(say)
    while not group.wait(timeout_seconds=_SLICE_SECONDS):
        free = ray.available_resources()
        left = ", ".join(f"{free.get(name, 0.0):g} {name}" for name in wanted.options.bundle)
        waiting.on(f"waiting for {wanted.hosts} hosts of the Ray cluster; free in all of it: {left}")
        if asked:
            raise Cancelled
        # If a node was lost during the wait, the other nodes may be too few.
        refusal = never_fits(wanted.options, wanted.hosts, ray.nodes())
        if refusal is not None and waiting.seconds >= wanted.wait_seconds:
            raise refusal


class _Waiting:
    """Measures a wait, and reports it from time to time."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._began = time.monotonic()
        self._next = FIRST_NOTICE_SECONDS

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def on(self, what: str) -> None:
        if self.seconds >= self._next:
            self._next = self.seconds + NEXT_NOTICE_SECONDS
            self._say(f"{what} (waited {self.seconds:.0f} s)")


def _pause(asked: Asked) -> None:
    time.sleep(_SLICE_SECONDS)
    if asked:
        raise Cancelled


def actors_in(
    ray: Any, group: Any, options: RayOptions, hosts: int, module: Any, cls: type, *arguments: Any
) -> list[Any]:
    """One actor of a class in each bundle of a placement group. It takes all that the bundle has. `module`: that of the class."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    made = own_actor_module(ray, module, cls)
    bundle: Mapping[str, float] = options.bundle
    named = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU", "memory")}
    return [
        made.options(
            num_cpus=bundle.get("CPU", 0),
            num_gpus=bundle.get("GPU", 0),
            memory=int(bundle["memory"]) if "memory" in bundle else None,
            resources=named or None,
            max_concurrency=_THREADS,
            max_restarts=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_bundle_index=index
            ),
        ).remote(*arguments)
        for index in range(hosts)
    ]


def _arrived(
    ray: Any, actors: Sequence[Any], nodes: Sequence[str], wanted: PlacementRequest, asked: Asked
) -> tuple[PlacedHost, ...]:
    from paceline.parts.engines.ray.cluster import check_versions

    code = ray.put(wanted.code)
    answers = [actor.arrive.remote(code) for actor in actors]
    deadline = time.monotonic() + ARRIVE_SECONDS
    pending = list(answers)
    while pending:
        _, pending = ray.wait(pending, num_returns=len(pending), timeout=_SLICE_SECONDS)
        if asked:
            raise Cancelled
        if pending and time.monotonic() > deadline:
            missing = nodes[answers.index(pending[0])]
            raise host_lost(missing, f"its actor did not start within {ARRIVE_SECONDS:.0f} s")
    facts = [_answer(ray, answer, node) for answer, node in zip(answers, nodes, strict=True)]
    check_versions(agent_actor.installed(), dict(zip(nodes, (fact["versions"] for fact in facts), strict=True)))
    return tuple(
        PlacedHost(rank=rank, actor=actor, node=fact["address"], port=fact["port"])
        for rank, (actor, fact) in enumerate(zip(actors, facts, strict=True))
    )


def _answer(ray: Any, answer: Any, node: str) -> Mapping[str, Any]:
    try:
        facts: Mapping[str, Any] = ray.get(answer)
    except ray.exceptions.RayTaskError as error:
        raise _could_not_start(node, error) from error
    except ray.exceptions.RayError as error:
        raise host_lost(node, type(error).__name__) from error
    return facts


def _could_not_start(node: str, error: Any) -> PacelineError:
    cause = getattr(error, "cause", None) or error
    return UsageError(
        "U22",
        f"the agent of the Ray node {node} could not be prepared",
        saw=f"{type(cause).__name__}: {cause}".splitlines()[0][:300],
        next=f"on {node}: df -h /tmp",
    )


def host_lost(node: str, why: str) -> HostLost:
    """The error for a node of the cluster that is lost, or whose actor is lost."""
    return HostLost("E17", f"the Ray node {node} is lost", saw=why, next="ray status")


def _leave(ray: Any, actors: Sequence[Any]) -> None:
    """End the agents and actors on the nodes, without waiting for lost nodes."""
    leaving = [actor.leave.remote() for actor in actors]
    with suppress(ray.exceptions.RayError):
        if leaving:
            ray.wait(leaving, num_returns=len(leaving), timeout=_LEAVE_SECONDS)
    for actor in actors:
        with suppress(ray.exceptions.RayError):
            ray.kill(actor, no_restart=True)
