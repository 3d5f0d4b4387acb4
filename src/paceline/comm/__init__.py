"""Gradient exchange: what runs inside a rank and moves tensors between ranks. torch and the standard library only.

    backends.py   the names that init_process_group takes: `paceline`, `smddp`, `paceline_mpi`
    backend/      the process group `paceline`: picks a transport for each collective, names the rank that is to blame
    mpi/          the process group `paceline_mpi`, over mpi4py
    transports/   how bytes travel: shared memory on a host, gloo, pre-posted receives, two levels; lanes for exchanges in the background
    strategies/   how gradients are averaged, one strategy a file; codecs for lossy ones
    ddp/          what DistributedDataParallel is told: the communication hook and its state
    auto/         which strategy is fastest here, measured while the job trains
    observer.py   whom every exchange is told to: the recorder of the rank, or nobody
    topology.py   which ranks share a host

Nothing here knows the recording: what is exchanged is told to one observer.
"""
