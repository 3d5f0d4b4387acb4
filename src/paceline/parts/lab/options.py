"""The options of `paceline run` for hosts on this machine and for the network between them."""

from paceline.option import Option

OPTIONS = (
    Option(
        "local-hosts",
        "Start N hosts on this machine, algo-1 ... algo-N, each with its own agent.",
        "N",
        kind=int,
    ),
    Option(
        "network",
        "Links of the local hosts: 1gbit,5ms,loss=0.1%. Also zones=2,zone-delay=1ms and limits: cpus=0.5,memory=2gib. Needs root.",
        "RATE,DELAY,NAME=VALUE,...",
        more="See [emulation.md](emulation.md#rehearsing-a-network).",
    ),
)
