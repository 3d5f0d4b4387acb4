"""Everything that runs inside a rank. No other package imports this one: `site/sitecustomize.py` loads it in a process that imports torch.

    site/sitecustomize.py   runs in every Python process below a worker; waits for `import torch`
    bootstrap.py            registers the instruments, and decides which patch runs after which module of torch
    rank_recorder.py        the state of this process as a rank: its ring, its counters, its steps
    instrument.py           the base class of an instrument, and the events that an instrument can receive
    registry.py             calls the instruments of each event; an instrument that raises is removed
    instruments/            the instruments, one per file
    host_identity.py        a string that tells which ranks share a host
    gradients.py            attaches the strategy of `--gradients` to every DistributedDataParallel
    smdistributed/          the package smdistributed, for jobs in which it is not installed
    frameworks.py           corrects what GPU-only libraries assume, on a machine without GPUs
    gate.py                 tells the agent whether it may send questions to this process; closed before any other step of its exit
    exit_handler.py         notes the end of the main thread, and writes the last cells of the ring
    exit_code.py            the exit code that the script meant
    call_log.py, loops.py   records what each collective is, which line of the user's code calls it, and in which loop
    sampling.py             marks how each DistributedSampler distributes its samples
    our_groups.py           the process groups of comm, whose Python methods C++ calls
    no_compile.py           hides the replaced functions from torch.compile and from warnings
    signal_handlers.py      tells an instrument's own exception from an exception that a signal handler raised
    frame_line.py           the line at which a frame is, also between two lines
    error_file.py           writes the exception that ended the process, for the agent
    host_aliases.py         resolves the host names of a run that has no private /etc/hosts

This package imports the standard library and the user's own torch only, and uses relative imports only: if the user has another package
called `paceline`, this one is loaded under a private name. The rule for every instrument is trio's rule for instruments: an instrument that
raises is dropped and reported once (in the header of the ring), and the watched program never sees the exception. Nothing in this package
waits for a disk, a lock or a network.
"""
