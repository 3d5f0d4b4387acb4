"""Collectives among the ranks of one host through one segment of shared memory.

    segment.py      memory without a name, mapped by every rank
    connect.py      how the ranks meet
    sync.py         counters and bells: how a rank waits for another
    arrays.py       what the exchanges need of the arrays that they move
    collectives.py  the algorithms
    host_ranks.py   the ranks of a host, which make one exchange at a time
    transport.py    SharedMemory: all of it for torch's tensors

Only transport.py imports torch: ranks of TensorFlow use the rest, with numpy's arrays.
"""
