"""The agent of one host of a local cluster: `python -m paceline.cli.local_host SPEC WORDS...`. Started by `--local-hosts`, not by hand."""

import json
import os
import sys
from dataclasses import replace

from paceline.cli import guarded
from paceline.emulate.local_hosts import LocalHost
from paceline.emulate.namespace import enter_with_hosts


def main(words: list[str]) -> int:
    """Enter the host's own namespaces, then run the agent as on any host."""
    host = LocalHost(**json.loads(words[0]))
    if host.private_hosts:
        enter_with_hosts(host.addresses)
    return guarded(lambda: _run(host, words[1:]), words[1:])


def _run(host: LocalHost, words: list[str]) -> int:
    from paceline.cli import run

    args = run.parse(words)
    job, setting = run.prepare(args, os.environ)
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
    setting = replace(
        setting,
        leash=host.leash,
        addresses=host.addresses,
        translated=not host.private_hosts,
        # Hosts that share a machine meet on its loopback interface, whatever the machine's own name resolves to.
        extra_environment={} if "GLOO_SOCKET_IFNAME" in os.environ else {"GLOO_SOCKET_IFNAME": "lo"},
    )
    return run.run_here(job, setting, args, quiet=host.node_rank != 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
