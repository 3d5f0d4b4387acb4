"""What follows from the name of a backend of torch. Whoever asks which kind a backend is asks here. The name of the
question for all that a backend's recorder has stands here too, because the rank answers it and the agent asks it.

Since 2.14 torch has several backends over NCCL: `nccl-legacy` (the `nccl` of older releases), `nccl2` (what 2.15 makes of `nccl`, and what
that group then calls itself) and `nccl-lazy`. Names of several devices are written `cpu:gloo,cuda:nccl`. Imports nothing.
"""

FINISHED_ENTRIES = "paceline_finished_entries"
"""The handler of a rank's worker server, one of ours, that answers with the finished entries of a recorder too: `?backend=nccl2`. torch's
own question leaves them out since 2.15, and without them nothing shows which rank is late in each step."""
_AVERAGING = ("smddp", "paceline", "paceline_mpi", "xccl")


def names_in(backend: str) -> list[str]:
    """The names of a backend that may name one for each kind of device.

    Holds:   names_in("cpu:gloo,cuda:nccl2") == ["gloo", "nccl2"]; names_in("NCCL") == ["nccl"]
    """
    return [part.rpartition(":")[2].strip() for part in backend.lower().split(",")]


def is_nccl(backend: str) -> bool:
    """Whether it is one of the backends over NCCL, for at least one kind of device."""
    return any(name.startswith("nccl") for name in names_in(backend))


def waits_on_device(backend: str) -> bool:
    """Whether collectives of a device's tensors wait on the device, where the host does not see it: NCCL, XCCL and UCC."""
    return is_nccl(backend) or not {"xccl", "ucc"}.isdisjoint(names_in(backend))


def averages_floats(backend: str) -> bool:
    """Whether every backend in this name takes ReduceOp.AVG for floats. Where it is not known, a sum that is divided gives the same."""
    return all(is_nccl(name) or name in _AVERAGING for name in names_in(backend))
