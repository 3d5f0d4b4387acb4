"""What lives inside a rank. Nothing outside imports this package: `site/sitecustomize.py` loads it in a process that imports torch.

    site/sitecustomize.py   reaches every Python process below a worker; waits for `import torch`
    bootstrap.py            registers the instruments, and which patch runs after which module of torch
    rank_recorder.py        this process as a rank: its ring, its counters, its steps
    instrument.py           what an instrument is, and the events of which it may hear
    registry.py             who hears of which event; one that raises is taken out
    instruments/            the instruments, one a file
    host_identity.py        which ranks share a host
    gradients.py            the strategy that the job was started with, for every DistributedDataParallel
    smdistributed/          the package smdistributed, found where none is installed
    frameworks.py           what libraries for GPUs only need to know where there is none
    gate.py                 whether anything may be asked of this process; closed before any other step of its exit
    exit_handler.py         the end of the main thread, and the last words in the ring
    exit_code.py            the exit code that the script meant
    call_log.py, loops.py   what each collective is, where it stands in the user's code, and in which loop
    sampling.py             how each DistributedSampler deals out its samples
    our_groups.py           the process groups of comm, which C++ calls in Python
    no_compile.py           keeps torch.compile and warnings away from the replacements
    signal_handlers.py      whose an exception is that reaches an instrument
    error_file.py           the exception that ended the process, for the agent
    host_aliases.py         host names of a run that has no private /etc/hosts

Standard library and the user's own torch only, and relative imports only: where the user has another package called `paceline`,
this one is loaded under a private name. The rule for every instrument is trio's: one that raises is dropped and reported once (in
the header of the ring), and the program it watches never sees it. Nothing here waits for a disk, a lock or a network.
"""
