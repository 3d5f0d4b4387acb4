"""Whether the ranks of a saved step had the same tensors, so that another number of ranks can go on from it."""

import math
from typing import Any

from paceline.parts.resume.recording.plain_values import values_in
from paceline.parts.resume.recording.saved_state import Manifest, folder_of
from paceline.parts.resume.recording.state_buffer import DOCUMENT
from paceline.parts.resume.recording.state_piece import PieceError, checksums_of
from paceline.parts.resume.saved_steps import checked
from paceline.parts.resume.state_store import StateStore


def difference(store: StateStore, manifest: Manifest) -> str | None:
    """What is not the same on all ranks; None: everything that has to be.

    A buffer of a model, such as the statistics of BatchNorm, may differ, and so may a single number, such as the loss of the last batch.

    Raises:  PieceError: a file is not what the manifest says; FileNotFoundError
    """
    folder = folder_of(manifest.step)
    first: tuple[Any, list[int]] | None = None
    own: frozenset[int] = frozenset()
    for rank, saved in enumerate(manifest.ranks):
        plain = b"".join(checked(store, folder, saved.plain))
        try:
            document = dict(zip(DOCUMENT, values_in(plain), strict=True))
            own_numbers = _may_differ(document)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise PieceError(f"it is no document of a rank: {error}") from error
        blocks = checked(store, folder, saved.tensors)
        found = document["described"], checksums_of(blocks)
        # The last block comes only if the file is whole.
        for _ in blocks:
            pass
        if first is None:
            first, own = found, own_numbers
            continue
        if found[0] != first[0]:
            return f"rank {rank} keeps other tensors than rank 0"
        for number, (a, b) in enumerate(zip(first[1], found[1], strict=True)):
            if a != b and number not in own:
                dtype, shape = first[0][number]
                return f"rank {rank} has another value than rank 0 in a tensor of its own ({dtype}, {list(shape)})"
    return None


def _may_differ(document: dict[str, Any]) -> frozenset[int]:
    """Numbers of the tensors that are each rank's own without harm."""
    nodes = document["nodes"] or []
    buffers = {
        reference[0]
        for node in nodes
        if node is not None and node[0] == "module"
        for reference in node[1][3].values()
        if type(reference) is tuple and reference
    }
    tensors = {nodes[number][1][0] for number in buffers if nodes[number] is not None and nodes[number][0] == "tensor"}
    single = {number for number, (_, shape) in enumerate(document["described"]) if math.prod(shape) == 1}
    return frozenset(tensors | single)
