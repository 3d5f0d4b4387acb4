"""Writes a saved state of a rank as a file that `torch.load` reads: a program of its own, in the Python that has the ranks' torch.

Standard input: a line of JSON (`Asked`), the plain values, the tensors as a safetensors file. Standard output: a line of JSON.
Nothing is written unless standard input is whole.
"""

import json
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

from ....atomic_write import atomic_write
from ..recording.state_buffer import DOCUMENT, unpacked
from ..recording.state_piece import BLOCK_BYTES, PieceError, layout, put_piece, sizes_of


class Asked(TypedDict):
    """The first line of standard input."""

    out: str
    """Where to write."""
    plain_bytes: int
    """Size of the plain values."""
    tensor_file_bytes: int
    """Size of the file of the tensors."""
    python: str
    """Version of the ranks' Python."""
    facts: dict[str, Any]
    """What the file says of the state: its step, its run, and so on."""


def main() -> int:
    """Read standard input, write the file, and say what is in it, or why there is none."""
    try:
        answer = _export(sys.stdin.buffer)
    except PieceError:
        # The other end has found the pieces damaged, or was killed.
        return 1
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _export(stream: BinaryIO) -> dict[str, Any]:
    asked: Asked = json.loads(stream.readline())
    own = sys.version.split()[0]
    if own.split(".")[:2] != asked["python"].split(".")[:2]:
        return _read_to_its_end(stream, {"wrong": "python", "saw": own})
    try:
        import torch
    except ImportError as error:
        return _read_to_its_end(stream, {"wrong": "torch", "saw": str(error)})
    from .state_dicts import StateDicts

    plain = stream.read(asked["plain_bytes"])
    if len(plain) != asked["plain_bytes"]:
        raise PieceError("it is cut")
    document = dict(zip(DOCUMENT, unpacked(plain), strict=True))
    found = StateDicts(document, _tensors(stream, document["described"], asked["tensor_file_bytes"]))
    content = {
        **asked["facts"],
        "models": found.models,
        "optimizers": found.optimizers,
        "schedulers": found.schedulers,
        "values": found.values,
    }
    path = Path(asked["out"])
    try:
        with atomic_write(path) as file:
            torch.save(content, file)
        size = path.stat().st_size
    except (OSError, RuntimeError) as error:
        # torch's writer of archives makes a RuntimeError of what the file system says.
        return {"wrong": "file", "saw": f"{type(error).__name__}: {error}".partition("\n")[0]}
    return {
        "size_bytes": size,
        "models": {name: len(state) for name, state in found.models.items()},
        "optimizers": list(found.optimizers),
        "schedulers": list(found.schedulers),
        "values": list(found.values),
        "left_out": found.left_out,
    }


def _tensors(stream: BinaryIO, described: Sequence[tuple[str, Sequence[int]]], most_bytes: int) -> list[Any]:
    """The tensors of the file on the stream, which is read to its end."""
    import torch

    descriptor = os.memfd_create("paceline-exported-state", os.MFD_CLOEXEC)
    try:
        blocks = _blocks(stream)
        total = put_piece(blocks, descriptor, 0, most_bytes)
        _read_to_its_end(stream, {})
        memory = mmap.mmap(descriptor, total) if total else None
    finally:
        os.close(descriptor)
    sizes = sizes_of(described)
    tensors = []
    for at, size, (dtype, shape) in zip(layout(sizes)[0], sizes, described, strict=True):
        own = getattr(torch, dtype)
        if size and memory is not None:
            tensors.append(
                torch.frombuffer(memory, dtype=own, count=size // own.itemsize, offset=at).view(tuple(shape))
            )
        else:
            tensors.append(torch.empty(tuple(shape), dtype=own))
    return tensors


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    while block := stream.read(BLOCK_BYTES):
        yield block


def _read_to_its_end(stream: BinaryIO, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, once nobody writes to the stream any more."""
    for _ in _blocks(stream):
        pass
    return answer


if __name__ == "__main__":
    sys.exit(main())
