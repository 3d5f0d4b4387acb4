"""The HTTP server below the API. It serves a listening socket until a signal, and closes idle connections after a while or in a crowd."""

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Any, ClassVar

HEAD_SECONDS = 10.0
# Each client holds a connection. It opens another one if this one was closed between two requests.
MOST_WITHOUT_A_REQUEST = 64
# The event loop accepts this many connections at a time, before it can close any of them.
_ACCEPTED_AT_ONCE = 16


def run_server(app: Any, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve an ASGI application until SIGINT or SIGTERM. `ready` is called once the server answers requests."""
    import uvicorn

    class Server(uvicorn.Server):  # type: ignore[misc]
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    # Lifespan events are for applications with start-up code.
    config = uvicorn.Config(
        app,
        http=_protocol(),
        ws="none",
        log_level="warning",
        lifespan="off",
        access_log=False,
        backlog=_ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=2,
    )
    # uvicorn raises the signal again after it has closed. The default action would end this process while its jobs still run.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # the caller ends the jobs next


def _protocol() -> type[asyncio.Protocol]:
    """HTTP/1.1, except that a connection without complete request headers is closed after a time limit. If there are too many of them, the
    oldest one is closed.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):  # type: ignore[misc]
        without_a_request: ClassVar[dict["Protocol", asyncio.TimerHandle]] = {}

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch()

        def connection_lost(self, error: Exception | None) -> None:
            self.forget()
            super().connection_lost(error)

        def watch(self) -> None:
            has_request = self.cycle is not None and not self.cycle.response_complete
            if has_request:
                self.forget()
            elif self not in self.without_a_request:
                if len(self.without_a_request) >= MOST_WITHOUT_A_REQUEST:
                    next(iter(self.without_a_request)).hang_up()
                self.without_a_request[self] = self.loop.call_later(HEAD_SECONDS, self.hang_up)

        def hang_up(self) -> None:
            self.forget()
            self.transport.close()

        def forget(self) -> None:
            timer = self.without_a_request.pop(self, None)
            if timer is not None:
                timer.cancel()

    return Protocol
