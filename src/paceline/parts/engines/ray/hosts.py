"""Starts the remote program on the nodes of a Ray cluster in which a job would be placed, for a look at them before the job runs."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from paceline.errors import PacelineError
from paceline.parts.engines.host_check import StartedHost, nodes_in_use
from paceline.parts.engines.ray import host_actor
from paceline.parts.engines.ray.cluster import joined, never_fits
from paceline.parts.engines.ray.options import RayOptions
from paceline.parts.engines.ray.placement import actors_in, host_lost
from paceline.parts.engines.remote_program import ConnectionLost, source

_SLICE_SECONDS = 0.25


@asynccontextmanager
async def started_on_nodes(
    options: RayOptions, hosts: int, environ: Mapping[str, str], wait_seconds: float
) -> AsyncIterator[Sequence[StartedHost]]:
    """One node for each host, placed as the job would be. The placement group and its actors end with the block.

    Raises:  Unknown: the nodes were in use for `wait_seconds`; UsageError E01, E10, E11, E33: see `joined` and `never_fits`
    """
    with joined(options, environ, 0) as ray:
        if refusal := never_fits(options, hosts, ray.nodes()):
            raise refusal
        from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

        group = placement_group([dict(options.bundle) for _ in range(hosts)], strategy=options.strategy_for(hosts))
        actors: list[Any] = []
        try:
            await _reserved(ray, group, hosts, wait_seconds)
            addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
            where = placement_group_table(group)["bundles_to_node_id"]
            nodes = [addresses.get(where[index], where[index]) for index in range(hosts)]
            actors += actors_in(ray, group, options, hosts, host_actor, host_actor.HostActor, source())
            yield [
                StartedHost(
                    name=node,
                    program=_OnNode(ray, actor),
                    address=node,
                    directory="",
                    why_lost=partial(_lost, node),
                )
                for node, actor in zip(nodes, actors, strict=True)
            ]
        finally:
            for actor in actors:
                with suppress(ray.exceptions.RayError):
                    ray.kill(actor, no_restart=True)
            with suppress(ray.exceptions.RayError):
                remove_placement_group(group)


@dataclass(frozen=True, slots=True)
class _OnNode:
    """The answers of one actor."""

    ray: Any
    actor: Any

    async def ask(self, do: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer.

        Raises:  ConnectionLost: the actor or its node is lost, or the program failed there
        """
        try:
            answer: dict[str, Any] = await asyncio.wrap_future(self.actor.ask.remote({"do": do, **question}).future())
        except self.ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            raise ConnectionLost("", f"{type(cause).__name__}: {cause}".splitlines()[0][:300], None) from error
        return answer


async def _reserved(ray: Any, group: Any, hosts: int, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while not group.wait(timeout_seconds=_SLICE_SECONDS):
        if time.monotonic() >= deadline:
            free = ", ".join(
                f"{amount:g} {name}" for name, amount in sorted(ray.available_resources().items()) if ":" not in name
            )
            raise nodes_in_use(hosts, wait_seconds, f" (free in all of the cluster: {free})")
        # Here Ctrl-C ends the wait.
        await asyncio.sleep(0)


def _lost(node: str, lost: ConnectionLost) -> PacelineError:
    return host_lost(node, str(lost))
