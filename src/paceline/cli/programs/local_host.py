"""The agent of one host of a local cluster: `python -m paceline.cli.programs.local_host SPEC WORDS...`. Not typed by hand."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace

from paceline.cli import guarded
from paceline.emulate.local_hosts import LOOPBACK, LocalHost
from paceline.emulate.namespace import enter_with_hosts


def main(argv: list[str]) -> int:
    """Enter the host's own namespaces, then run the agent as on any host."""
    host = LocalHost(**json.loads(argv[0]))
    if host.private_hosts and host.interface == LOOPBACK:
        enter_with_hosts(host.addresses)
    return guarded(lambda: _run(host, argv[1:]), argv[1:])


def _run(host: LocalHost, argv: list[str]) -> int:
    from paceline.cli.run import verb

    args = verb.parse(argv)
    # Whoever started this host has asked every URL already.
    args.urls_are_checked = True
    job, config = verb.prepare(args, os.environ)
    first = next(iter(host.addresses))
    job = replace(
        job,
        node_rank=host.node_rank,
        host_name=host.name,
        master_addr=first if host.private_hosts else host.addresses[first],
        agents_port=host.port,
        is_first=host.node_rank == 0,
        local_address=host.addresses[host.name],
    )
    config = replace(
        config,
        leash=host.leash,
        addresses=host.addresses,
        translated=not host.private_hosts,
        extra_environment=_interfaces(host.interface, os.environ),
        network_interface=host.interface,
        events=tuple(host.events),
        relays=tuple((reading, fd) for reading, fd in host.relays),
    )
    return verb.run_here(job, config, args, quiet=host.node_rank != 0)


def _interfaces(interface: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Where the ranks' libraries meet, whatever the machine's own name resolves to."""
    if interface != LOOPBACK:
        # The only one that a host with a network of its own has; the user's variable names one of the machine.
        return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    return {} if "GLOO_SOCKET_IFNAME" in environ else {"GLOO_SOCKET_IFNAME": interface}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
