"""K15: the script overwrites the launcher's address, port or rank with its own."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, constant_text, script_of

PAGE = """\
The script sets the address of the rendezvous itself

What it means: The script assigns a fixed text to MASTER_ADDR, MASTER_PORT, RANK or WORLD_SIZE, looks for a free port
  itself, or passes its own address to init_process_group. It overwrites the values that the launcher gave this rank.
Why it matters: With more than one host, "localhost" sends each host to itself. Each host waits until the timeout for
  ranks that meet elsewhere. A fixed rank is the same on every rank. A port that each rank draws is another one on each,
  so that they never meet, on one host too. Such lines remain from tests on one machine, or from mp.spawn.
What to do: Remove the lines; init_process_group reads all of it from the environment. If the script also runs alone,
  use `os.environ.setdefault("MASTER_ADDR", "localhost")`, which keeps the launcher's value.
Source: torch.distributed, "Environment variable initialization"; paceline explain R02, R06.
"""

_MEETING = ("MASTER_ADDR", "MASTER_PORT")
_IDENTITY = ("RANK", "WORLD_SIZE")
_MAKES_RANKS = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes", "multiprocessing.Process")
_DRAWN = ("rand", "free_port", "unused_port", "open_port", "find_port", "getsockname", "portpicker")


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each such assignment, if it would mislead more than one host or rank."""
    ranks = before.hosts * (before.ranks_per_host or 1)
    if ranks > 1:
        yield from _drawn_ports(script_of(before))
    misleading = (*(_MEETING if before.hosts > 1 else ()), *(_IDENTITY if ranks > 1 else ()))
    if not misleading:
        return
    script = script_of(before)
    for node, name, value in _assigned(script):
        # A script that first checks whether the launcher has set the variable is right.
        if name in misleading and not script.condition_names(node, name) and not _agrees(name, value, ranks):
            yield script.finding(
                node,
                "K15",
                f"the script sets {name} to {value!r} itself and overwrites the launcher's value",
                # A call may set other variables too. They are not shown, because one may be a secret.
                saw="" if isinstance(node, ast.Assign) else f"{script.place(node)}: {name}={value!r}",
                next=f"{script.place(node)}: os.environ.setdefault({name!r}, {value!r}), or remove the line",
            )
    if before.hosts > 1:
        yield from _init_methods(script)


def _drawn_ports(script: Script) -> Iterator[Finding]:
    """Ports that each rank draws for itself. A script that makes its own processes draws one for all of them."""
    if any(next(script.calls(name), None) is not None for name in _MAKES_RANKS):
        return
    for node in script.every(ast.Assign):
        names = [
            constant_text(target.slice)
            for target in node.targets
            if isinstance(target, ast.Subscript) and script.dotted(target.value) == {"os.environ"}
        ]
        if "MASTER_PORT" in names and not script.condition_names(node, "MASTER_PORT") and _is_drawn(script, node.value):
            yield script.finding(
                node,
                "K15",
                "each rank draws a port of its own for the rendezvous: they never meet",
                next=f"{script.place(node)}: remove the line; every rank has MASTER_PORT from the launcher",
            )


def _is_drawn(script: Script, value: ast.expr) -> bool:
    named = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    meant = [value, *(one.value for one in script.every(ast.Assign) if {*_names(one.targets)} & named)]
    words = [
        node.attr if isinstance(node, ast.Attribute) else node.id
        for part in meant
        for node in ast.walk(part)
        if isinstance(node, ast.Attribute | ast.Name)
    ]
    return any(drawn in word.lower() for word in words for drawn in _DRAWN)


def _names(targets: list[ast.expr]) -> Iterator[str]:
    for target in targets:
        yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _assigned(script: Script) -> Iterator[tuple[ast.AST, str, str]]:
    for node in script.every(ast.Assign):
        value = constant_text(node.value)
        for target in node.targets:
            if (
                value is not None
                and isinstance(target, ast.Subscript)
                and script.dotted(target.value) == {"os.environ"}
            ):
                yield node, constant_text(target.slice) or "", value
    for call in script.calls("os.environ.update"):
        pairs: list[tuple[str | None, str | None]] = [(one.arg, constant_text(one.value)) for one in call.keywords]
        for given in call.args:
            if isinstance(given, ast.Dict):
                pairs += [
                    (constant_text(key), constant_text(value))
                    for key, value in zip(given.keys, given.values, strict=True)
                ]
        yield from ((call, name, value) for name, value in pairs if name is not None and value is not None)


def _agrees(name: str, value: str, ranks: int) -> bool:
    return name == "WORLD_SIZE" and value == str(ranks)


def _init_methods(script: Script) -> Iterator[Finding]:
    for call in script.calls("torch.distributed.init_process_group"):
        method = constant_text(argument(call, "init_method", 1)) or ""
        if method.startswith(("tcp://localhost:", "tcp://127.0.0.1:")):
            yield script.finding(
                call,
                "K15",
                f"init_method={method!r} sends each host to itself",
                next=f'{script.place(call)}: init_method="env://", or none',
            )


RULE = Rule(code="K15", page=PAGE, find=find)
