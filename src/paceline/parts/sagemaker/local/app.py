"""The HTTP side: AWS's JSON protocol, version 1.1, for SageMaker and CloudWatch Logs on one port."""

import asyncio
import ipaddress
import json
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline import listening as sockets
from paceline.clone import install_command
from paceline.contract.local_key import CREDENTIALS_FILE, new_access_key, published
from paceline.errors import UsageError
from paceline.parts.sagemaker.local import sts
from paceline.parts.sagemaker.local.errors import ApiError
from paceline.parts.sagemaker.local.host import probe
from paceline.parts.sagemaker.local.job_store import JobStore
from paceline.parts.sagemaker.local.logs_api import LogsApi
from paceline.parts.sagemaker.local.queue import Queue
from paceline.parts.sagemaker.local.runner import ServerConfig
from paceline.parts.sagemaker.local.service_model import LOGS, SAGEMAKER, checked, operation_of, written
from paceline.parts.sagemaker.local.signatures import Signatures
from paceline.parts.sagemaker.local.training_api import TrainingApi
from paceline.storage.urls import use_s3_at

_MEDIA_TYPE = "application/x-amz-json-1.1"
# By SageMaker's own limits, no request can be larger.
MOST_BODY_BYTES = 1 << 20
BODY_SECONDS = 30.0
_EXTRA = ("boto3", "fsspec", "starlette", "uvicorn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """The features of a host that this machine allows, and a text about the refused ones."""

    private_hosts: bool
    opt_ml: bool
    refused: str


class Api:
    """Both services. A request's headers and body go in; status, headers and JSON come out."""

    def __init__(self, training: TrainingApi, reading: LogsApi) -> None:
        self._operations = {SAGEMAKER: training.operations(), LOGS: reading.operations()}
        self._served = {name: frozenset(operations) for name, operations in self._operations.items()}

    def answer(self, target: str, body: bytes) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Carry out a request, or return an error."""
        headers = {"x-amzn-RequestId": str(uuid.uuid4())}
        try:
            return 200, headers, self._done(target, body)
        except ApiError as refusal:
            headers["x-amzn-ErrorType"] = refusal.code
            return refusal.status, headers, {"__type": refusal.code, "message": refusal.message}

    def _done(self, target: str, body: bytes) -> dict[str, Any]:
        name, operation = operation_of(target, self._served)
        return written(name, operation, self._operations[name][operation](checked(name, operation, _parsed(body))))


def _parsed(body: bytes) -> Any:
    try:
        request = json.loads(body or b"{}")
        # No answer can repeat a text with half a surrogate pair.
        json.dumps(request, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ApiError("SerializationException", f"The request is not JSON: {error!a}") from error
    return request


def application(api: Api, signatures: Signatures | None, *, body_seconds: float = BODY_SECONDS) -> Any:
    """The API as an ASGI application. `signatures` is None if only the socket's owner can connect.

    Holds:   a request that its headers do not permit is refused before a byte of its body is read
    """
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    def refused(request: Request, refusal: ApiError) -> Response:
        # Do not wait for the rest of the body.
        headers = {"x-amzn-ErrorType": refusal.code, "connection": "close"}
        if _is_form(request):
            return Response(sts.refused(refusal.code, refusal.message), refusal.status, headers, "text/xml")
        answer = {"__type": refusal.code, "message": refusal.message}
        return JSONResponse(answer, refusal.status, headers, media_type=_MEDIA_TYPE)

    async def let_in(request: Request) -> bytes:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
        claim = signatures.claim(headers) if signatures is not None else None
        body = await _body(request, body_seconds)
        if signatures is not None and claim is not None:
            query = request.url.query
            signatures.check(claim, request.method, f"/?{query}" if query else "/", body)
        return body

    async def serve(request: Request) -> Response:
        if "origin" in request.headers:
            return PlainTextResponse("this server is not asked by pages", 403, {"connection": "close"})
        if not is_named_directly(request.headers.get("host", "")):
            text = "this server is asked by its address, not by a name"
            return PlainTextResponse(text, 403, {"connection": "close"})
        try:
            body = await let_in(request)
        except ApiError as refusal:
            return refused(request, refusal)
        except ClientDisconnect:
            return Response(status_code=400)
        if _is_form(request):
            status, text = sts.answer(body)
            return Response(text, status, media_type="text/xml")
        # A job's files are written before the answer, so this does not run in the thread that serves all requests.
        target = request.headers.get("x-amz-target", "")
        status, headers, answer = await asyncio.to_thread(api.answer, target, body)
        return JSONResponse(answer, status, headers, media_type=_MEDIA_TYPE)

    async def broken(request: Request, error: Exception) -> Response:
        # Starlette raises the error again after this answer, and the server writes its traceback to stderr.
        answer = {"__type": "InternalFailure", "message": f"{type(error).__name__}: {error}"}
        return JSONResponse(answer, 500, {"x-amzn-ErrorType": "InternalFailure"}, media_type=_MEDIA_TYPE)

    return Starlette(routes=[Route("/", serve, methods=["POST"])], exception_handlers={Exception: broken})


def _is_form(request: Any) -> bool:
    return str(request.headers.get("content-type", "")).startswith(sts.FORM)


async def _body(request: Any, seconds: float) -> bytes:
    """Raises:  ApiError: the body is larger or slower than any request of an AWS client."""
    too_large = ApiError("RequestEntityTooLargeException", f"A body has at most {MOST_BODY_BYTES} bytes.", status=413)
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > MOST_BODY_BYTES:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > MOST_BODY_BYTES:
                    raise too_large
    except TimeoutError:
        raise ApiError("RequestTimeoutException", f"The body did not come within {seconds:g} s.", status=408) from None
    return bytes(body)


def is_named_directly(host: str) -> bool:
    """Whether a request's Host is an address, localhost or this machine's name. A web page cannot send requests here under its own name.

    Holds:   is_named_directly("127.0.0.1:8090") and not is_named_directly("page.example")
    """
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower() in ("localhost", socket.gethostname().lower())
    return True


def allowed() -> Allowed:
    """The features of a host that this machine allows. A separate process really tries them."""
    said = subprocess.run(probe(), capture_output=True, text=True, check=False)
    kind, _, why = (said.stdout.strip() or said.stderr.strip()).partition(" ")
    return Allowed(private_hosts=kind in ("", "mounts"), opt_ml=not kind, refused=why)


def listening(host: str, port: int) -> socket.socket:
    """A listening socket. A port that is in use is refused before anything else.

    Raises:  UsageError U04
    """
    try:
        return sockets.listening(host, port)
    except OSError as error:
        raise UsageError(
            "U04",
            f"paceline sagemaker-local cannot listen on {host}:{port}",
            saw=error.strerror or str(error),
            next="paceline sagemaker-local --port 0 ...",
        ) from error


@contextmanager
def listening_at(path: Path) -> Iterator[socket.socket]:
    """A UNIX socket that only this user can connect to. It is removed afterwards. A stale socket file is replaced.

    Raises:  UsageError U04
    """
    try:
        listener = sockets.listening_at(path)
    except OSError as error:
        raise UsageError(
            "U04",
            f"paceline sagemaker-local cannot listen at {path}",
            saw=error.strerror or str(error),
            next="paceline sagemaker-local --unix ANOTHER_PATH ...",
        ) from error
    with listener:
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def need_extra() -> None:
    """Refuse if the libraries of the server are not installed.

    Raises:  UsageError E01
    """
    import importlib.util

    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            "E01",
            "paceline sagemaker-local needs libraries that are not installed",
            saw=f"no {', no '.join(missing)}",
            next=install_command("sagemaker"),
        )


def serve(
    listener: socket.socket,
    directory: Path,
    config: ServerConfig,
    *,
    most_jobs: int,
    most_hosts: int,
    ready: Callable[[str | None], None],
) -> None:
    """Serve until SIGINT or SIGTERM, then end every job. `ready` is called once the server answers requests. Its argument is the reason why
    this user's clients will not find the key by themselves, if there is a reason.

    Raises:  UsageError U22: the directory cannot be used
    """
    from paceline.parts.sagemaker.local.http_server import run_server

    use_s3_at(config.s3_endpoint, _region_of_s3())
    shelf = JobStore(directory, region=config.region)
    shelf.open()
    queue = Queue(shelf, config, most_jobs)
    unnamed = "" if config.private_hosts else config.refused
    api = Api(TrainingApi(shelf, queue, most_hosts=most_hosts, unnamed=unnamed), LogsApi(shelf, region=config.region))
    try:
        if listener.family == socket.AF_UNIX:
            run_server(application(api, None), listener, lambda: ready(None))
        else:
            key = new_access_key()
            with published(key, directory / CREDENTIALS_FILE, listener.getsockname()[1]) as unknown:
                run_server(application(api, Signatures(key)), listener, lambda: ready(unknown))
    finally:
        queue.close()
        shelf.close()


def _region_of_s3() -> str:
    """The region in AWS's variables and files. A server that replaces S3 accepts any region, but one must be named."""
    import boto3

    return boto3.session.Session().region_name or "us-east-1"


def region_of(environ: Mapping[str, str]) -> str:
    """The region for ARNs and for the containers' AWS_REGION."""
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
