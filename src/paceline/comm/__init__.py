"""Gradient exchange: the code that runs inside a rank and moves tensors between ranks. It imports torch and the standard library only,
and the parts of shared memory that ranks of TensorFlow use import no torch.

    backends.py   the names that init_process_group takes: `paceline`, `smddp`, `paceline_mpi`
    backend/      the process group `paceline`: chooses a transport for each collective, names the rank at fault
    mpi/          the process group `paceline_mpi`, over mpi4py
    transports/   transports of bytes: shared memory on a host, gloo, pre-posted receives, two levels; lanes for background exchanges
    strategies/   how gradients are averaged, one strategy a file; codecs for lossy ones
    ddp/          the communication hook of DistributedDataParallel and its state
    auto/         measures, while the job trains, which strategy is fastest
    observer.py   the observer that is told of every exchange: the recorder of the rank, or none
    topology.py   ranks that share a host
    entry_points.py   what torch calls for a name that nobody has registered

Nothing here knows the recording: each exchange is reported to one observer.
"""
