"""Kind of tensors that are spread over ranks (DTensor): parameters, gradients and optimizer state under FSDP2 (`fully_shard`).

Each rank keeps its own shard, and a new process puts it back into its own shard. So the number of ranks, the device mesh and the
placements must be as before.
"""

import sys
from typing import Any

from .object_graph import CannotKeep, CannotPutBack, Capture, ObjectKind, Restore

# Placements that a shard can be put back by.
_KEPT = frozenset({"Shard", "Replicate"})


class ShardedTensorKind(ObjectKind):
    """A DTensor. Payload: its shard on this rank, global shape and stride, mesh, placements, is_parameter, requires_grad."""

    code = "sharded tensor"

    def __init__(self) -> None:
        # The live mesh of a description, for tensors that the training loop has made.
        self._meshes: dict[tuple[Any, ...], Any] = {}

    def keep(self, capture: Capture, thing: Any) -> Any:
        placements = _placements(thing)
        if any(name not in _KEPT for name, _ in placements):
            raise CannotKeep(f"`{capture.place}` is a DTensor that is placed by {placements}")
        # `to_local` gives another view at each call.
        shard = capture.value(thing._local_tensor)
        capture.sharded.append((capture.copy_of(shard), thing))
        return [
            shard,
            tuple(thing.shape),
            tuple(thing.stride()),
            _mesh(thing),
            placements,
            isinstance(thing, sys.modules["torch"].nn.Parameter),
            thing.requires_grad,
        ]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        shard, shape, _, mesh, placements, _, requires_grad = payload
        if not is_sharded(live):
            live = self._made(restore, payload)
        elif (tuple(live.shape), _mesh(live), _placements(live)) != (shape, mesh, placements):
            raise CannotPutBack(
                f"`{restore.place}` is spread over ranks in another way than before: "
                f"{shape} by {placements} on {mesh}, and now {tuple(live.shape)} by {_placements(live)} on {_mesh(live)}"
            )
        elif restore.thing(shard, live._local_tensor) is not live._local_tensor:
            raise CannotPutBack(f"the shard of `{restore.place}` is another one than before")
        self._meshes.setdefault(mesh, live.device_mesh)
        if live.requires_grad != requires_grad and live.is_leaf:
            live.requires_grad_(requires_grad)
        restore.sharded.append((live, restore.copy_of(shard)))
        return live

    def _made(self, restore: Restore, payload: Any) -> Any:
        """A tensor that the training loop had made, such as an optimizer's average."""
        shard, shape, stride, mesh, placements, is_parameter, _ = payload
        if is_parameter or mesh not in self._meshes:
            raise CannotPutBack(f"the script has not spread `{restore.place}` over ranks again")
        tensor = sys.modules["torch.distributed.tensor"]
        placed = [tensor.Replicate() if dim is None else tensor.Shard(dim) for _, dim in placements]
        with sys.modules["torch"].no_grad():
            return tensor.DTensor.from_local(
                restore.thing(shard), self._meshes[mesh], placed, run_check=False, shape=shape, stride=stride
            )


def is_sharded(thing: Any) -> bool:
    """Whether this is a DTensor."""
    tensor = sys.modules.get("torch.distributed.tensor")
    return tensor is not None and isinstance(thing, tensor.DTensor)


def local(tensor: Any) -> Any:
    """A tensor, or this rank's shard of one that is spread over ranks."""
    return tensor._local_tensor if is_sharded(tensor) else tensor


def _mesh(thing: Any) -> tuple[Any, ...]:
    """Device, ranks and names of a tensor's mesh, as plain values."""
    mesh = thing.device_mesh
    return mesh.device_type, tuple(mesh.mesh.shape), tuple(mesh.mesh.flatten().tolist()), mesh.mesh_dim_names


def _placements(thing: Any) -> tuple[tuple[str, int | None], ...]:
    return tuple((type(placement).__name__, getattr(placement, "dim", None)) for placement in thing.placements)
