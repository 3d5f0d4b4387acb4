"""What lives inside a rank. Nothing outside imports this package: `site/sitecustomize.py` loads it in a process that imports torch.

    site/sitecustomize.py   reaches every Python process below a worker; waits for `import torch`
    bootstrap.py            which patch runs after which module of torch
    rank_recorder.py        this process as a rank: its ring, its counters, its steps
    instruments.py          the patches that time data, waits and checkpoints, and that count collectives
    host_identity.py        which ranks share a host
    exchange_observer.py    what comm tells of its exchanges, into the ring
    ddp.py                  exposed communication of DistributedDataParallel, sampled
    gradients.py            the strategy that the job was started with, for every DistributedDataParallel
    groups.py               process groups: where a process becomes a rank
    smdistributed/          the package smdistributed, found where none is installed
    frameworks.py           what libraries for GPUs only need to know where there is none
    server.py               torch's worker server, started quietly
    gate.py                 whether anything may be asked of this process; closed before any other step of its exit
    exit_handler.py         the end of the main thread, and the last words in the ring
    exit_code.py            the exit code that the script meant
    no_compile.py           keeps torch.compile and warnings away from the replacements
    signal_handlers.py      whose an exception is that reaches an instrument
    error_file.py           the exception that ended the process, for the agent
    host_aliases.py         host names of a run that has no private /etc/hosts

Standard library and the user's own torch only, and relative imports only: where the user has another package called `paceline`,
this one is loaded under a private name. The rule for every instrument is trio's: one that raises is dropped and reported once (in
the header of the ring), and the program it watches never sees it. Nothing here waits for a disk, a lock or a network.
"""
