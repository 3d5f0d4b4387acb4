"""Joins a Ray cluster as a driver, checks whether its nodes can hold a job, and translates Ray's errors."""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.clone import CLONE
from paceline.errors import PacelineError, UsageError
from paceline.parts.engines.base import missing_extra
from paceline.parts.engines.ray.options import AUTO, EMBEDDED, RayOptions
from paceline.probes.ports import Contact, try_connect

_CONNECT_SECONDS = 3.0
_OBJECT_STORE_BYTES = 128 << 20
_CLIENT = "ray://"
_TOKENS_SINCE = (2, 52)
_STRANGER_SECONDS = 60.0
_STRANGER = """
import sys
from ray._raylet import GcsClient
GcsClient(address=sys.argv[1]).internal_kv_keys(b"", namespace=None, timeout=5)
"""
# Settings of Ray in this process: it sends no usage reports and prints nothing to our terminal.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}


@contextmanager
def joined(options: RayOptions, environ: Mapping[str, str], code_bytes: int) -> Iterator[Any]:
    """The module `ray`, connected to the cluster. An embedded cluster ends with the block.

    Raises:  UsageError E01: Ray is not installed; E10, E11: the cluster cannot be joined
    """
    try:
        _settle(options, environ)
        import ray
    except ImportError as error:
        raise missing_extra("ray", "ray", error) from error
    if options.address == EMBEDDED:
        require_tokens(ray.__version__)
    _reach(options.address)
    try:
        ray.init(**_arguments(options, code_bytes))
    except Exception as error:
        raise refused(error, options.address) from error
    try:
        if options.address == EMBEDDED and "RAY_AUTH_MODE" not in environ:
            refuse_strangers(ray.get_runtime_context().gcs_address)
        yield ray
    finally:
        ray.shutdown()


def require_tokens(version: str) -> None:
    """Check that Ray supports tokens: an embedded cluster must keep other users out, and an older Ray ignores the setting.

    Raises:  UsageError E11: this Ray has no tokens
    Source:  Ray 2.52's release notes, token authentication (RAY_AUTH_MODE)
    """
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _TOKENS_SINCE:
        raise UsageError(
            "E11",
            f"Ray {version} cannot keep strangers out of a cluster that is started for one job",
            saw="RAY_AUTH_MODE=token has a meaning since Ray {}.{}".format(*_TOKENS_SINCE),
            next="pip install 'ray>={}.{}'".format(*_TOKENS_SINCE),
        )


def refuse_strangers(address: str) -> None:
    """Check that the cluster refuses a process without a token.

    Raises:  UsageError E11: the cluster admits a process without a token
    """
    without = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    tried = subprocess.run(
        [sys.executable, "-P", "-c", _STRANGER, address],
        env=without,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_STRANGER_SECONDS,
        check=False,
    )
    if tried.returncode == 0:
        raise UsageError(
            "E11",
            "the Ray cluster that was started for this job lets strangers in",
            saw=f"a process without its token read {address}",
            next="pip install --upgrade ray; or --option address=... of a cluster of your own",
        )


def never_fits(options: RayOptions, hosts: int, nodes: Sequence[Mapping[str, Any]]) -> UsageError | None:
    """Why the cluster's nodes could not hold the job even if they were free; None: they could hold it.

    `nodes`: the result of ray.nodes().

    Holds:   a node counts as often as the bundle fits into it, or once if every host needs its own node
    """
    alive = [node for node in nodes if node.get("Alive")]
    places = [_places(node.get("Resources", {}), options.bundle) for node in alive]
    strategy = options.strategy_for(hosts)
    if strategy == "STRICT_SPREAD":
        room = sum(1 for count in places if count)
    elif strategy == "STRICT_PACK":
        room = max(places, default=0)
    else:
        room = sum(places)
    if room >= hosts:
        return None
    spread = strategy == "STRICT_SPREAD" and sum(places) >= hosts
    return UsageError(
        "E33",
        f"the Ray cluster can never hold this job: {hosts} hosts with {_amounts(options.bundle)} each, {strategy}",
        saw="; ".join(f"{_node_name(node)}: {_amounts(_relevant(node, options.bundle))}" for node in alive)
        or "no node is alive",
        next="--option strategy=PACK" if spread else _smaller(options, room),
    )


def check_versions(here: Mapping[str, str | None], there: Mapping[str, Mapping[str, str | None]]) -> None:
    """Check that Python, paceline and torch are the same everywhere. If torch is missing here, the hosts are compared with each other.

    `there`: node -> its versions. A node's build label ("+cpu") may differ from the label here.

    Raises:  UsageError E11: versions differ; the error names the node and both versions
    """
    wanted: dict[str, tuple[str | None, str]] = {
        name: (version, "here") for name, version in here.items() if version is not None
    }
    for node, versions in there.items():
        for name, version in versions.items():
            expected, where = wanted.setdefault(name, (version, node))
            if _release(version) == _release(expected):
                continue
            has = f"has {name} {version}" if version else f"does not have {name}"
            raise UsageError(
                "E11",
                f"the Ray node {node} {has}, and {where} is {name} {expected}",
                saw=", ".join(f"{package} {found or 'missing'}" for package, found in versions.items()) + f" on {node}",
                next=f"start the node's Ray from Python {expected}"
                if name == "python"
                else f"on {node}: pip install {CLONE}"
                if name == "paceline"
                else f"on {node}: pip install '{name}=={_release(expected)}'",
            )


def refused(error: BaseException, address: str) -> PacelineError:
    """The error in four parts for Ray's refusal to let this process join."""
    text = _plain(f"{type(error).__name__}: {error}")
    for pattern, made in _REFUSALS:
        if re.search(pattern, text, re.IGNORECASE):
            return made(text, address)
    return _unreachable(text, address)


def own_actor_module(ray: Any, module: Any, cls: type) -> Any:
    """The class as Ray's actor class, which is sent to the nodes by value."""
    import ray.cloudpickle as pickler

    pickler.register_pickle_by_value(module)
    return ray.remote(cls)


def _settle(options: RayOptions, environ: Mapping[str, str]) -> None:
    """Set Ray's environment variables in this process. Ray reads most of them when it is imported."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if options.address == EMBEDDED and "RAY_AUTH_MODE" not in environ:
        # No other user may join the cluster, and no token may stay in the user's home directory.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _arguments(options: RayOptions, code_bytes: int) -> dict[str, Any]:
    arguments: dict[str, Any] = {"address": options.address, "log_to_driver": False, "logging_level": "CRITICAL"}
    if options.address == EMBEDDED:
        arguments["include_dashboard"] = False
        arguments["object_store_memory"] = _OBJECT_STORE_BYTES + 2 * code_bytes
    return arguments


def _reach(address: str) -> None:
    """Check that the address answers. Ray itself would try for half a minute before it reports that."""
    if address in (AUTO, EMBEDDED):
        return
    host, _, port = address.removeprefix(_CLIENT).partition("/")[0].rpartition(":")
    attempt = try_connect(host.strip("[]"), int(port), _CONNECT_SECONDS)
    if attempt.contact is not Contact.CONNECTED:
        raise _unreachable(str(attempt), address)
    if not address.startswith(_CLIENT) and not _has_node_here():
        raise _no_node("no raylet process runs here", address)


def _has_node_here() -> bool:
    """Whether a Ray node runs on this machine. Without one, Ray aborts the whole process and raises no exception."""
    network = os.readlink("/proc/self/ns/net")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text() == "raylet\n" and os.readlink(process / "ns/net") == network:
                return True
        except PermissionError:
            return True  # it belongs to another user, so it may be the cluster's
        except OSError:
            continue
    return False


def _unreachable(saw: str, address: str) -> UsageError:
    where = (
        "no Ray cluster was found on this machine"
        if address == AUTO
        else f"the Ray cluster at {address} does not answer"
    )
    if address == EMBEDDED:
        where = "Ray could not be started on this machine"
    start = "ray start --head" if address == AUTO else f"on a node of the cluster: ray status --address {address}"
    return UsageError("E10", where, saw=saw, next="ray start --head" if address == EMBEDDED else start)


def _other_version(saw: str, address: str) -> UsageError:
    return UsageError(
        "E11",
        f"the Ray cluster at {address} runs another Python or Ray than this machine",
        saw=saw,
        next="pip install 'ray==VERSION-OF-THE-CLUSTER'",
    )


def _no_node(saw: str, address: str) -> UsageError:
    return UsageError(
        "E10",
        f"this machine is not a node of the Ray cluster at {address}, and only a node can submit to it",
        saw=saw,
        next=f"ray start --address {address} --num-cpus 0",
    )


def _not_admitted(saw: str, address: str) -> UsageError:
    return UsageError(
        "E10",
        f"the Ray cluster at {address} answers, and does not admit us: it wants a token, or another one",
        saw=saw,
        next="export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=FILE",
    )


_REFUSALS: tuple[tuple[str, Callable[[str, str], UsageError]], ...] = (
    (r"version mismatch", _other_version),
    # The address was reachable a moment ago, so the refusal usually concerns the token. Ray reports that only in its log.
    (r"unauthenticated|authentication|InvalidAuthToken|failed to connect to ray cluster", _not_admitted),
    (
        r"this node has an IP address|node_ip_address|no node info|can't find.*node|not find.*raylet|local raylet",
        _no_node,
    ),
    (r"could not find any running ray|connection|timed? ?out|unavailable|failed to connect", _unreachable),
)


def _plain(text: str) -> str:
    """The text as one short line, without possible secrets."""
    line = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())
    line = re.sub(r"(?i)(token|password)([\"'=: ]+)\S+", r"\1\2***", line)
    return line if len(line) <= 300 else f"{line[:300]} ..."


def _places(resources: Mapping[str, float], bundle: Mapping[str, float]) -> int:
    return min(int(resources.get(name, 0.0) / amount + 1e-9) for name, amount in bundle.items())


def _relevant(node: Mapping[str, Any], bundle: Mapping[str, float]) -> dict[str, float]:
    return {name: node.get("Resources", {}).get(name, 0.0) for name in bundle}


def _node_name(node: Mapping[str, Any]) -> str:
    return str(node.get("NodeManagerAddress") or node.get("NodeID"))


def _amounts(bundle: Mapping[str, float]) -> str:
    return ", ".join(
        f"{amount / 2**30:.1f} GiB memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in bundle.items()
    )


def _smaller(options: RayOptions, room: int) -> str:
    if room:
        return f"ask for {room} hosts, or add nodes with `ray start --address`; --option wait=10m waits for them"
    names = {"CPU": "cpus_per_host", "GPU": "gpus_per_host", "memory": "memory_per_host"}
    largest = next((names[name] for name in options.bundle if name in names), "resources")
    return f"lower --option {largest}, or add larger nodes with `ray start --address`"


def _release(version: str | None) -> str | None:
    return version and version.partition("+")[0]
