"""Which variables are live: written down for small functions, and tried on random programs whose dead variables are overwritten."""

import contextlib
import ctypes
import inspect
import random
import sys
import textwrap
import time
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.parts.resume.worker.liveness import live_names


class Head:
    """An iterable that notes what is live in the frame that takes its first item."""

    def __init__(self, items, names, *, frame=1):
        self.items, self.names, self.frame = iter(items), names, frame

    def __iter__(self):
        return self

    def __next__(self):
        frame = sys._getframe(self.frame)
        self.names.setdefault("live", live_names(frame.f_code, frame.f_lasti))
        return next(self.items)


def live_at_head(text, **known):
    """What is live at the first `head(...)` or `call()` of this function's body."""
    names = {}
    space = {"head": lambda items: Head(items, names), "call": lambda: next(Head([1], names, frame=2)), **known}
    passing = lambda *given, **named: contextlib.nullcontext()  # noqa: E731
    space |= {"torch": types.SimpleNamespace(no_grad=passing, autocast=passing), "suppress": contextlib.suppress}
    source = f"def main(model, loader):\n{textwrap.indent(textwrap.dedent(text), '    ')}\nresult = main(1, [1, 2, 3])"
    exec(compile(source, "<program>", "exec"), space)
    return names["live"]


@pytest.mark.parametrize(
    ("text", "live"),
    [
        # The last batch and the last loss are not live at the head.
        ("best = 0\nfor batch in head(loader):\n    loss = batch * model\n    best = max(best, loss)\nreturn best", {"model", "best"}),
        # A loss that is printed behind the loop is.
        ("loss = 0\nfor batch in head(loader):\n    loss = batch\nreturn loss", {"loss"}),
        ("loss = 0\nfor batch in head(loader):\n    loss = batch\n    if loss > 5:\n        break\nreturn loss", {"loss"}),
        # The target of a loop is live if it is read behind the loop.
        ("for batch in head(loader):\n    pass\nreturn batch", {"batch"}),
        # Assigned in one branch only.
        ("for batch in head(loader):\n    if batch > 1:\n        x = batch\n    else:\n        x = model\n    x", {"model"}),
        ("x = 1\nfor batch in head(loader):\n    if batch > 1:\n        x = batch\n    x + 1", {"x"}),
        # A caller's frame: in the middle of an expression.
        ("a = b = 1\na + call()\nreturn b", {"b"}),
        ("a = b = 1\na = call()\nreturn a + b", {"b"}),
        # The handler reads what the body would assign again.
        ("x = 1\nfor batch in loader:\n    try:\n        x = call()\n    except ValueError:\n        print(x)", {"x"}),
        ("x = 1\nfor batch in loader:\n    try:\n        y = call()\n    finally:\n        model", {"model"}),
        ("for batch in head(loader):\n    x = 1\n    del x", set()),
        ("x = 1\nfor batch in head(loader):\n    pass\ndel x", {"x"}),
        # What functions inside share with this one is always live.
        ("n = 0\nx = 1\ndef inner():\n    return n\nfor batch in head(loader):\n    n = 1\n    inner()", {"n", "inner"}),
        ("for batch in loader:\n    call()\nelse:\n    model", {"model"}),
        ("while model:\n    call()\n    model = 0\nreturn 1", set()),
        ("model.eval() if model == 2 else 0\nfor batch in head(loader):\n    pass", set()),
        ("vars(call)\nfor batch in head(loader):\n    pass", set()),
        ("with open('/dev/null') as f:\n    call()", set()),
        # What may swallow an exception leaves the old value, and torch's do not.
        ("x = 1\nfor batch in head(loader):\n    with suppress(KeyError):\n        x = model\n    x + 1", {"model", "x"}),
        ("x = 1\nfor batch in head(loader):\n    with torch.no_grad():\n        x = model\n    x + 1", {"model"}),
        ("x = 1\nfor batch in head(loader):\n    with torch.autocast(on=model.real) as y:\n        x = 2\n    x + 1", {"model"}),
        ("x = 1\nfor batch in head(loader):\n    with torch.no_grad(), suppress(KeyError):\n        x = 1\n    x + 1", {"x"}),
        ("x = 1\nfor batch in head(loader):\n    with suppress(torch.no_grad()):\n        x = 1\n    x + 1", {"x"}),
    ],
)  # fmt: skip
def test_what_is_live(text, live):
    assert live_at_head(text) == live


def test_a_comprehension_keeps_its_own_variable_at_most():
    # From 3.12 on it puts the function's variable of that name back, which reads it.
    text = "outer = [1]\nfor batch in head(loader):\n    outer = [1 for i in loader]\n    i = 2"
    assert live_at_head(text) in ({"loader"}, {"loader", "i"})


@pytest.mark.parametrize(
    "call", ["locals()", "vars()", "dir()", "eval('1')", "exec('1')", "x = vars", "sys._getframe().f_locals"]
)
def test_all_names_are_live_in_a_function_that_reads_them_by_name(call):
    assert live_at_head(f"for batch in head(loader):\n    pass\n{call}", sys=sys) is None


def test_all_names_are_live_before_a_frame_begins_and_in_the_body_of_a_class():
    assert live_names(live_at_head.__code__, -1) is None
    names = {}
    exec("class A:\n    x = 1\n    for y in head([1]):\n        pass", {"head": lambda items: Head(items, names)})
    assert names["live"] is None


def of_a_module(text):
    names = {}
    exec(compile(textwrap.dedent(text), "train.py", "exec"), {"head": lambda items: Head(items, names)})
    return names["live"]


def test_the_names_of_a_module_are_its_variables():
    live = of_a_module("""
        import sys
        model, loss, seen, dead = 1, 2, 3, 4
        class Meter:
            def add(self):
                def inner():
                    return lambda: seen
        def unused(): pass
        for batch in head([1, 2]):
            loss = model
            print = len
            squares = [1 for other in (1, 2)]
            __version__ = 1
    """)
    assert live >= {"model", "seen", "__version__"}
    assert not live & {"loss", "dead", "Meter", "unused", "batch", "squares", "sys", "other"}


def test_the_names_of_a_module_are_all_live_where_a_function_looks_them_up():
    assert of_a_module("def save():\n    return globals()\nx = 1\nfor y in head([1]):\n    pass") is None


def test_a_generator_is_read_as_a_function_is():
    found = []

    def batches(loader):
        used, dead = 1, 2
        for item in loader:
            found.append(live_names(sys._getframe().f_code, sys._getframe().f_lasti))
            yield item + used
            dead = used
        return dead

    assert list(batches([1, 2])) == [2, 3]
    assert found[0] == {"found", "used", "item"}


def test_what_a_function_costs_grows_as_its_length_and_it_is_looked_through_once():
    def long_function(loops):
        body = "".join(
            f"    for i{n} in range(3):\n        a{n} = f(i{n}, a{n - 1})\n        b{n} = a{n}\n"
            for n in range(1, loops)
        )
        space = {}
        exec(f"def main(f, a0):\n{body}", space)
        return space["main"].__code__

    def seconds(code, times=1):
        began = time.process_time()
        for _ in range(times):
            assert live_names(code, 100) is not None
        return time.process_time() - began

    seconds(long_function(20))
    long = long_function(240)
    first = seconds(long)
    assert first < 8 * 3 * min(seconds(long_function(30)) for _ in range(3))
    assert seconds(long, times=100) < first


class Poison:
    """What a dead variable is overwritten with: any use is seen in the result."""

    def __repr__(self):
        return "POISON"


NAMES = "abcde"


def expressions(draw):
    name = draw(st.sampled_from(NAMES))
    return draw(
        st.sampled_from(
            [
                f"v({name!r}, {name})",
                "probe()",
                "choose()",
                name,
                f"[{name} for {name} in (1, 2)]",
                f"(lambda: {name})()",
            ]
        )
    )


@st.composite
def blocks(draw, depth=0, loop=False):
    """A few lines of a random program. It ends: `choose` says no after a while, and loops are over three items."""
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        kinds = ["assign", "assign", "probe", "read", "del", "pair"]
        if depth < 3:
            kinds += ["if", "for", "head", "try", "finally", "with", "while"]
        if loop:
            kinds += ["break", "continue"]
        kinds += ["raise", "return"]
        kind, name = draw(st.sampled_from(kinds)), draw(st.sampled_from(NAMES))
        inner = lambda loop=loop: textwrap.indent(draw(blocks(depth + 1, loop)), "    ")  # noqa: E731
        match kind:
            case "assign":
                lines.append(f"{name} = {expressions(draw)}")
            case "pair":
                lines.append(f"{name}, {draw(st.sampled_from(NAMES))} = {draw(st.sampled_from(NAMES))}, probe()")
            case "probe":
                lines.append("probe()")
            case "read":
                lines.append(f"note({expressions(draw)})")
            case "del":
                lines.append(f"del {name}")
            case "if":
                lines += ["if choose():", inner(), *(["else:", inner()] if draw(st.booleans()) else [])]
            case "for" | "head":
                lines += [f"for {name} in {kind}s():".replace("fors()", "(1, 2, 3)"), inner(True)]
                lines += ["else:", inner()] if draw(st.booleans()) else []
            case "while":
                lines += ["while choose():", inner(True)]
            case "try":
                lines += ["try:", inner(), f"except (E, NameError) as {name}:", inner()]
            case "finally":
                lines += ["try:", inner(), "finally:", inner()]
            case "with":
                lines += [f"with swallow() as {name}:", inner()]
            case "raise":
                lines.append("if choose(): raise E")
            case "return":
                lines.append(f"if choose(): {draw(st.sampled_from(['return ' + name, 'raise Done(' + name + ')']))}")
            case _:
                lines.append(f"if choose(): {kind}")
    return "\n".join(lines)


class E(Exception):
    pass


class Done(Exception):
    pass


def set_variable(frame, name, value):
    frame.f_locals[name] = value
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def run(program, seed, poisoned):
    """What a program notes, if its dead variables are overwritten when it comes to a probe for the n-th time (None: never)."""
    noted, count, draws = [], 0, random.Random(seed)
    left = 60

    def at_probe(frame):
        nonlocal count
        count += 1
        if count - 1 != poisoned:
            return
        live = live_names(frame.f_code, frame.f_lasti)
        if live is not None:
            # A name without a value stays without it: the program may well ask.
            for name in [name for name in frame.f_locals if name in NAMES and name not in live]:
                set_variable(frame, name, Poison())

    def probe():
        at_probe(sys._getframe(1))
        return count

    class Heads:
        def __init__(self):
            self.items = iter((4, 5, 6))

        def __iter__(self):
            return self

        def __next__(self):
            at_probe(sys._getframe(1))
            return next(self.items)

    def choose():
        nonlocal left
        left -= 1
        return left > 0 and draws.random() < 0.5

    class Swallow:
        def __enter__(self):
            return 7

        def __exit__(self, kind, value, trace):
            return isinstance(value, E)

    def v(name, value):
        noted.append((name, repr(value)))
        return value

    space = {
        "probe": probe, "heads": Heads, "choose": choose, "swallow": Swallow, "E": E, "Done": Done, "v": v,
        "note": lambda value: noted.append(repr(value)),
    }  # fmt: skip
    try:
        exec(program, space)
        noted.append(repr(space.get("result")))
    except Exception as error:
        noted.append(f"{type(error).__name__} {error}")
    return noted, count


# Python 3.14 warns of what it still does.
@pytest.mark.filterwarnings("ignore:'(return|break|continue)' in a 'finally' block:SyntaxWarning")
@settings(max_examples=300, deadline=None)
@given(blocks(), st.integers(0, 1 << 16), st.sampled_from(["function", "generator", "module"]))
def test_a_variable_that_is_said_to_be_dead_can_be_overwritten(block, seed, kind):
    start = "a, b, c, d, e = 'a', 'b', 'c', 'd', 'e'\n"
    if kind == "module":
        program = start + block.replace("return ", "raise Done(1)#")
    else:
        give = "\n    yield probe()\n" if kind == "generator" else "\n"
        ask = "list(main())" if kind == "generator" else "main()"
        program = f"def main():\n{textwrap.indent(start + block, '    ')}{give}    return e\nresult = {ask}\n"
    code = compile(program, "<program>", "exec")
    noted, probes = run(code, seed, None)
    for number in range(min(probes, 12)):
        assert run(code, seed, number)[0] == noted, f"probe {number} of\n{program}"


def test_overwriting_a_live_variable_is_seen_by_the_test_above(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "live_names", lambda code, offset: frozenset())
    code = compile("def main():\n    a = 1\n    probe()\n    note(a)\nmain()", "<program>", "exec")
    assert run(code, 0, None)[0] != run(code, 0, 0)[0]


def test_functions_of_the_standard_library_can_be_read():
    for module in (inspect, contextlib, textwrap, random, time):
        for value in vars(module).values():
            if inspect.isfunction(value):
                live_names(value.__code__, len(value.__code__.co_code) // 2)
