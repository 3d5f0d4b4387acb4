"""The server below the API: HTTP on a socket that listens, until a signal; who says nothing, or is one of a crowd, is hung up on."""

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Any, ClassVar

HEAD_SECONDS = 10.0
# Clients hold a connection each, and open another where one was closed between two requests.
MOST_WITHOUT_A_REQUEST = 64
# Of what has connected, the event loop takes in so many at a time, before any of them can be closed.
_ACCEPTED_AT_ONCE = 16


def run_server(app: Any, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve an ASGI application until SIGINT or SIGTERM; `ready` is called once requests are answered."""
    import uvicorn

    class Server(uvicorn.Server):  # type: ignore[misc]
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    # Lifespan events are for applications that have something to start.
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
    # uvicorn hands a signal on once it has closed; the default action would end this process with its jobs still running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # the jobs are ended next


def _protocol() -> type[asyncio.Protocol]:
    """HTTP/1.1, but for who connects and does not come to the end of a request's headers: after a while, and of too many the oldest, it
    is hung up on.
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
