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
        "link-rate",
        "Rate of each local host's link, such as 1gbit. Needs root, as do the next six.",
        "RATE",
        more="See [emulation.md](emulation.md#rehearsing-a-network).",
    ),
    Option("link-delay", "Time from one local host to another, such as 5ms.", "DELAY"),
    Option("link-loss", "Share of frames lost between local hosts, such as 0.1%.", "PERCENT"),
    Option("zones", "Spread the local hosts over N zones, in order.", "N", kind=int),
    Option("zone-delay", "Further delay between local hosts of different zones, such as 1ms.", "DELAY"),
    Option("host-cpus", "CPUs of each local host, such as 0.5.", "N"),
    Option("host-memory", "Memory of each local host, such as 2gib.", "SIZE"),
)
