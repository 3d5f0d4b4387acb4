"""K15: the script overwrites the launcher's address, port or rank with its own."""

import ast
import re
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.ranks_in_source import leaves, names_rank, words
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
Source: torch.distributed, "Environment variable initialization"; paceline help R02, R06.
"""

_MEETING = ("MASTER_ADDR", "MASTER_PORT")
_IDENTITY = ("RANK", "WORLD_SIZE")
# Whoever asks for one of these knows whether a launcher started it.
_ASKS_LAUNCHER = re.compile(
    r"(?:^|_)(?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|PROCID|NTASKS)$|elastic_launched|TORCHELASTIC"
)
_MAKES_RANKS = re.compile(r"\b(?:spawn|start_processes|Process|Popen)\(|\bsubprocess\.")
_DRAWN = ("rand", "free_port", "unused_port", "open_port", "find_port", "getsockname", "portpicker")


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each such assignment, if it would mislead more than one host or rank."""
    ranks = before.hosts * (before.ranks_per_host or 1)
    if ranks > 1:
        yield from _drawn_ports(script_of(before), before)
    misleading = (*(_MEETING if before.hosts > 1 else ()), *(_IDENTITY if ranks > 1 else ()))
    if not misleading:
        return
    script = script_of(before)
    for node, name, value in _assigned(script):
        if name in misleading and not _is_without_launcher(script, node) and not _agrees(name, value, ranks):
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


def _is_without_launcher(script: Script, node: ast.AST) -> bool:
    """Whether the script may first have looked for what a launcher sets."""
    function = script.function_of(node)
    tests = [*script.conditions(node)]
    # `if "RANK" in os.environ: return` before it.
    tests += [
        one.test
        for one in script.every(ast.If)
        if script.function_of(one) is function and one.lineno < getattr(node, "lineno", 0) and leaves(one)
    ]
    return any(map(_ASKS_LAUNCHER.search, (word for test in tests for part in ast.walk(test) for word in words(part))))


def _drawn_ports(script: Script, before: BeforeRun) -> Iterator[Finding]:
    """Ports that each rank draws for itself. A script that makes its own processes draws one for all of them."""
    for node in script.every(ast.Assign):
        names = [
            constant_text(target.slice)
            for target in node.targets
            if isinstance(target, ast.Subscript) and script.dotted(target.value) == {"os.environ"}
        ]
        if (
            "MASTER_PORT" in names
            and _is_drawn(script, node.value)
            and not (_is_without_launcher(script, node) or any(map(_MAKES_RANKS.search, before.texts)))
        ):
            yield script.finding(
                node,
                "K15",
                "each rank draws a port of its own for the rendezvous: they never meet",
                next=f"{script.place(node)}: remove the line; every rank has MASTER_PORT from the launcher",
            )


def _is_drawn(script: Script, value: ast.expr) -> bool:
    """Whether each rank draws this, itself or under every value of a name in it."""
    named = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    assigned = script.assigned(named)
    return not any(map(names_rank, (value, *assigned))) and (
        _draws(value) or (bool(assigned) and all(map(_draws, assigned)))
    )


def _draws(value: ast.expr) -> bool:
    return any(drawn in word.lower() for part in ast.walk(value) for word in words(part) for drawn in _DRAWN)


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
