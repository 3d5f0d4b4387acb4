"""Gradient exchange: what runs inside a rank and moves tensors between ranks. torch and the standard library only.

    observer.py          whom every exchange is told to: the recorder of the rank, or nobody
    topology.py          which ranks share a host
    shared_memory.py     collectives among the ranks of one host, through memory that they share
    process_group.py     the backend `paceline` (and `smddp`): a process group that picks the transport (plain_calls.py and
                         reducing_calls.py are its other methods, large.py runs what gloo does not carry, two_levels.py goes over
                         hosts, devices.py is about CUDA, failures.py and mates.py name the rank that is to blame)
    mpi.py               the backend `paceline_mpi`, over mpi4py (mpi_*.py: its names, its thread, MPI in this process, its reductions)
    backends.py          how these become names that init_process_group takes
    channel.py           gloo or NCCL among the ranks of a group, for one lane of an exchange
    lanes.py             exchanges in the background, in the same order on every rank
    strategies/          one way of averaging gradients a file, and the wrappers that compose with them
    gradients.py         a strategy by its name, and DDP with it
    tuner.py             `auto` for one model; network_probe.py measures links, prediction.py and course.py decide, renewal.py lets
    DDP begin anew

Nothing here knows the recording: what is exchanged is told to one observer.
"""
