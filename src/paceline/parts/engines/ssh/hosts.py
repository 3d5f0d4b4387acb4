"""Starts the remote program on the hosts of a job over SSH, for a look at them before the job runs."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from paceline.parts.engines.host_check import StartedHost
from paceline.parts.engines.ssh import preflight
from paceline.parts.engines.ssh.connection import SshConnection, host_of
from paceline.parts.engines.ssh.job import private_folder
from paceline.parts.engines.ssh.options import Settings


@asynccontextmanager
async def started_over_ssh(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[Sequence[StartedHost]]:
    """The hosts of the settings. A host that cannot be reached is among them: its program answers nothing.

    Raises:  UsageError E01: this machine has no ssh
    """
    folder = private_folder(environ)
    connections = [SshConnection(host, settings, folder, number) for number, host in enumerate(settings.hosts)]
    try:
        try:
            await asyncio.gather(*(one.open() for one in connections))
            addresses = await asyncio.gather(*(host_of(settings, one.host) for one in connections))
        except OSError as error:
            raise preflight.no_ssh(settings, error) from error
        yield [
            StartedHost(
                name=one.host,
                program=one,
                address=address,
                directory=settings.workdir,
                why_lost=partial(preflight.unreachable, settings, one.host),
            )
            for one, address in zip(connections, addresses, strict=True)
        ]
    finally:
        await asyncio.gather(*(one.close() for one in connections))
        shutil.rmtree(folder, ignore_errors=True)
