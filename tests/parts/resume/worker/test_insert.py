"""The calls that are put around what loops run over: which loops get one, and that nothing else of a file or a module changes."""

import ast
import builtins
import dataclasses
import doctest
import importlib
import importlib.machinery
import importlib.resources
import inspect
import os
import pickle
import random
import sys
import textwrap
import traceback
import warnings

import pytest

from paceline.parts.resume.loops_in_source import (
    AGAIN,
    CALL,
    WHILE,
    decoded,
    diff,
    loops_to_continue,
    put_calls,
    with_calls,
)
from paceline.parts.resume.worker import insert
from paceline.parts.resume.worker.insert import transform, watch_imports
from paceline.worker.error_file import is_users_directory


def lines_of(text):
    text = textwrap.dedent(text).lstrip("\n")
    return [loop.lineno for loop in loops_to_continue(ast.parse(text), text)]


def test_the_loops_of_a_training_script_get_the_call():
    assert lines_of("""
        for epoch in range(3):
            for x, y in loader:
                step(x, y)
        async def main():
            for x in loader:
                await step(x)
        class Trainer:
            def fit(self):
                for x in self.loader:
                    self.step(x)
                while self.goes_on:
                    self.step()
    """) == [1, 2, 5, 9, 11]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "for x in y:\n    total += x",
        "z = [f(x) for x in y]",
        "async def f():\n    async for x in y:\n        g(x)",
        "def forward(x):\n    for layer in x:\n        def g():\n            for a in x: a()",
        "class Net(nn.Module):\n    def run(self):\n        for layer in self.layers:\n            x = layer(x)",
        "class Base(LightningModule): pass\nclass Net(Base):\n    def run(self):\n        for layer in self.layers:\n            layer()",
        "@torch.compile(mode='max')\ndef step(x):\n    for y in x:\n        y()",
        "def step(x):\n    for y in x:\n        y()\nstep = torch.compile(step)",
        "for x in y:  # paceline: no-resume\n    f(x)",
        "while x < f(y):\n    x += 1",
        "while x:  # paceline: no-resume\n    f(x)",
        "for x in g(\n    1,\n):  # paceline:no-resume because\n    f(x)",
        "from paceline.resume import state, steps\nfor x in steps(y):\n    f(x)\nfor z in y:\n    f(z)",
        "import paceline.resume as r\nfor x in r.steps(y):\n    f(x)",
        "from paceline import resume\nfor x in resume.steps(y):\n    f(x)",
    ],
)
def test_these_loops_are_left_alone(text):
    assert lines_of(text) == []
    assert diff(text, "train.py") == ""


def test_the_comment_holds_for_one_loop_and_not_for_its_body():
    assert lines_of("for x in y:  # paceline: no-resume\n    for z in x:\n        f(z)") == [2]
    assert lines_of("for x in y:\n    f(x)  # paceline: no-resume") == [1]


def test_the_call_has_the_line_and_what_the_loop_runs_over(monkeypatch):
    seen = []
    monkeypatch.setattr(
        builtins, CALL, lambda line, source: seen.append((line, source)) or reversed(source), raising=False
    )
    space = {}
    exec(transform("a = []\n\nfor x in [1, 2]:\n    a.append(x)\nelse:\n    a.append(0)\n", "train.py"), space)
    assert (seen, space["a"]) == ([(3, [1, 2])], [2, 1, 0])


def test_without_a_session_the_call_gives_back_its_argument(monkeypatch):
    monkeypatch.delattr(builtins, CALL, raising=False)
    space = {}
    exec(transform("a = []\nfor x in 1, 2:\n    a.append(x)\nwhile a:\n    a.pop()", "train.py"), space)
    assert (space["x"], space["a"]) == (2, [])


WHILE_LOOP = """\
a = []
while (
    n := len(a)
) < 4:
    a.append(n)
    if a == stop:
        break
else:
    a.append("else")
"""


@pytest.mark.parametrize(("stop", "came"), [([0, 1], [0, 1]), (None, [0, 1, 2, 3, "else"])])
def test_a_while_tells_that_it_begins_and_that_it_looks_whether_it_goes_on(monkeypatch, stop, came):
    told = []
    monkeypatch.setattr(builtins, CALL, None, raising=False)
    monkeypatch.setattr(builtins, WHILE, lambda line, last_line: told.append((line, last_line)), raising=False)
    monkeypatch.setattr(builtins, AGAIN, lambda line: told.append(line) or True, raising=False)
    space = {"stop": stop}
    exec(transform(WHILE_LOOP, "train.py"), space)
    assert space["a"] == came
    assert told == [(2, 7), *[2] * len(came)]


def test_the_diff_shows_the_file_as_it_runs():
    text = "import x\n\nfor é, y in zip(ä, b):  # all\n    for z in 1, 2:\n        f(z)\n"
    assert diff(text, "train.py").splitlines() == [
        "--- train.py",
        "+++ train.py (as it runs)",
        "@@ -2,4 +2,4 @@",
        " ",
        "-for é, y in zip(ä, b):  # all",
        "-    for z in 1, 2:",
        "+for é, y in __paceline_loop__(3, zip(ä, b)):  # all",
        "+    for z in __paceline_loop__(4, (1, 2)):",
        "         f(z)",
    ]


def test_the_diff_of_a_while():
    text = "if x:\n\twhile é(x) or \\\n\t\ty:\n\t\tf(x)\n"
    assert diff(text, "train.py").splitlines()[3:] == [
        " if x:",
        "-\twhile é(x) or \\",
        "-\t\ty:",
        "+\t__paceline_while__(2, 4)",
        "+\twhile __paceline_again__(2) and (é(x) or \\",
        "+\t\ty):",
        " \t\tf(x)",
    ]


@pytest.mark.parametrize(
    "module", [os, random, inspect, traceback, ast, importlib.machinery, textwrap, dataclasses, doctest]
)
def test_the_text_with_the_calls_is_the_code_that_runs(module):
    with open(module.__file__, "rb") as file:
        source = file.read()
    tree = ast.parse(source)
    put_calls(tree, decoded(source))
    assert ast.dump(tree) == ast.dump(ast.parse(with_calls(decoded(source))))


@pytest.mark.parametrize(
    "over",
    [
        "(1, 2), (3)",
        "(1, 2)",
        "()",
        "(i for i in x)",
        "(y := x)",
        "(x)",
        "(lambda: x)()",
        "*x, 1",
        "x if x else x",
        "(\n  x\n)",
    ],
)
def test_what_a_loop_runs_over_may_be_any_expression(over):
    text = f"for a in {over}:\n    f(a)\n"
    tree = ast.parse(text)
    assert put_calls(tree, text)
    assert ast.dump(tree) == ast.dump(ast.parse(with_calls(text)))


@pytest.mark.parametrize(
    "source",
    [
        b"\xef\xbb\xbffor x in y:\n    f(x)\n",
        b"# coding: latin-1\r\nfor x in '\xe9':\r\n    f(x)\r\n",
        b"for x in y:\r    f(x)\r",
        b"#\x0c\nfor x in y:\n    f(x)",
    ],
)
def test_files_of_any_encoding_and_ends_of_lines(source):
    tree = ast.parse(source)
    put_calls(tree, decoded(source))
    assert ast.dump(tree) == ast.dump(ast.parse(with_calls(decoded(source).lstrip("\ufeff"))))
    transform(source, "train.py")


TRACED = """
def f(x):
    return x
for a in [f(1),
          f(2)]:
    f(a)
    for b in f(
        [1, 2],
    ):
        if b == 2:
            f(b)
            continue
        f(
            a)
    else:
        f(3)
for c in (
    f([1])
):
    f(c)
while f(0):
    pass
n = 0
while f(n) < 2:
    n += 1
    f(
        n)
    while n == 1:
        f(n)
        break
else:
    f(n)
"""


def test_a_debugger_sees_the_same_lines_in_the_same_order():
    def lines(code):
        seen = []

        def trace(frame, event, argument):
            if frame.f_code.co_filename != "train.py":
                return None
            seen.append((frame.f_code.co_name, event, frame.f_lineno))
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            exec(code, {})
        finally:
            sys.settrace(before)
        return seen

    assert lines(transform(TRACED, "train.py")) == lines(compile(TRACED, "train.py", "exec"))


@pytest.mark.parametrize(
    "text", ["for x in [1]:\n    f(x)", "for x in 5:\n    f(x)", "for x in [1]:\n    f(1)\n    for y in g(2) + 1: f()"]
)
def test_a_traceback_is_the_same(text, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(text)

    def failure(code):
        try:
            exec(code, {"g": lambda x: x})
        except Exception as error:
            error.__traceback__ = error.__traceback__.tb_next
            return traceback.format_exception(error)

    assert failure(transform(text, str(path))) == failure(compile(text, str(path), "exec"))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes modules of the user and watches imports; what was imported is forgotten behind the test."""
    finders = list(sys.meta_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    is_users_directory.cache_clear()
    seen = []
    monkeypatch.setattr(builtins, CALL, lambda line, source: seen.append(line) or source, raising=False)

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        return path

    write.seen = seen
    watch_imports()
    yield write
    sys.meta_path[:] = finders
    for name, module in list(sys.modules.items()):
        # torch has modules that answer to every name.
        places = [
            getattr(module, "__file__", None),
            *list(getattr(getattr(module, "__spec__", None), "submodule_search_locations", None) or ()),
        ]
        if any(isinstance(place, str) and place.startswith(str(tmp_path)) for place in places):
            del sys.modules[name]


LOOP = "for x in [1, 2]:\n    str(x)\n"


def test_a_module_of_the_user_gets_the_calls_and_no_cache_file(project, tmp_path):
    project("mine.py", LOOP)
    module = importlib.import_module("mine")
    assert project.seen == [1]
    assert not (tmp_path / "__pycache__").exists()
    assert type(module.__loader__) is importlib.machinery.SourceFileLoader
    assert module.__cached__ == module.__spec__.cached
    assert inspect.getsource(module) == LOOP
    watch_imports()
    assert sum(isinstance(finder, insert._Finder) for finder in sys.meta_path) == 1


def test_a_module_without_such_loops_is_cached_as_usual(project, tmp_path):
    project("plain.py", "x = 1\n")
    importlib.import_module("plain")
    assert [path.name.partition(".")[0] for path in (tmp_path / "__pycache__").iterdir()] == ["plain"]


def test_a_cache_file_of_the_unchanged_module_is_neither_read_nor_written(project, tmp_path):
    path = project("mine.py", LOOP)
    cache = importlib.util.cache_from_source(str(path))
    importlib.machinery.SourceFileLoader("mine", str(path)).get_code("mine")
    with open(cache, "rb") as file:
        before = file.read()
    importlib.import_module("mine")
    assert project.seen == [1]
    with open(cache, "rb") as file:
        assert file.read() == before


def test_a_module_is_loaded_again(project):
    path = project("mine.py", LOOP)
    module = importlib.import_module("mine")
    path.write_text(f"\n{LOOP}y = 5")
    assert importlib.reload(module) is module and module.y == 5
    assert project.seen == [1, 2]


def test_packages_relative_imports_and_namespace_packages(project):
    project("own/__init__.py", "from . import inner\nfrom .inner import value")
    project("own/inner.py", f"{LOOP}from .data import names\nvalue = names.a\n")
    project("own/data/names.py", f"{LOOP}a = 7")
    own = importlib.import_module("own")
    assert own.value == 7 and project.seen == [1, 1]
    assert sys.modules["own.data"].__file__ is None and list(sys.modules["own.data"].__path__)
    project("own/data/table.txt", "1 2")
    assert importlib.resources.files("own.data").joinpath("table.txt").read_text() == "1 2"
    assert importlib.resources.files("own").joinpath("inner.py").read_text().startswith(LOOP)


def test_classes_dataclasses_and_doctests(project):
    project(
        "shapes.py",
        '''
        from __future__ import annotations
        import dataclasses
        @dataclasses.dataclass
        class Point:
            """A point.

            >>> Point(1).sums()
            [1]
            """
            x: int
            def sums(self):
                found = []
                for one in [self.x]:
                    found.append(one)
                return found
        ''',
    )
    shapes = importlib.import_module("shapes")
    assert pickle.loads(pickle.dumps(shapes.Point(3))) == shapes.Point(3)
    assert inspect.getsource(shapes.Point.sums).startswith("    def sums(self):\n")
    assert doctest.testmod(shapes) == doctest.TestResults(0, 1)
    assert dataclasses.fields(shapes.Point)[0].type == "int"
    assert project.seen


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("for x in y\n    f(x)", SyntaxError),
        ("for x in 1:\n    f(x)", TypeError),
        ("# coding: nothing\nfor x in y: f(x)", SyntaxError),
    ],
)
def test_a_file_that_cannot_be_changed_fails_as_usual(project, text, error):
    project("broken.py", text)

    def failure():
        with pytest.raises(error) as found:
            exec("import broken")
        return traceback.format_exception(found.value)

    with_calls = failure()
    sys.meta_path.pop(0)
    importlib.invalidate_caches()
    assert with_calls == failure()


def test_a_warning_about_the_source_comes_once_and_only_without_a_cache_file(project):
    path = project("odd.py", f"{LOOP}a = '\\d' is 1\n")
    with warnings.catch_warnings(record=True) as expected:
        warnings.simplefilter("always")
        compile(path.read_text(), str(path), "exec")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        module = importlib.import_module("odd")
    assert [str(one.message) for one in found] == [str(one.message) for one in expected]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.machinery.SourceFileLoader("odd", str(path)).get_code("odd")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        importlib.reload(module)
    assert found == []


def test_modules_that_are_not_the_users_are_left_alone(project, tmp_path):
    project("site-packages/theirs.py", LOOP)
    sys.path.insert(0, str(tmp_path / "site-packages"))
    importlib.import_module("theirs")
    assert project.seen == []
    assert "get_code" not in vars(importlib.util.find_spec("colorsys").loader)


def test_another_finder_that_asks_all_finders_is_asked_once(project, monkeypatch):
    asked = []

    class Asks:
        def find_spec(self, name, path=None, target=None):
            asked.append(name)
            for finder in sys.meta_path:
                spec = None if finder is self else finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
            return None

    project("mine.py", LOOP)
    sys.meta_path.insert(1, Asks())
    importlib.import_module("mine")
    assert (asked, project.seen) == (["mine"], [1])
    sys.meta_path.insert(0, sys.meta_path.pop(1))
    with pytest.raises(ImportError):
        importlib.import_module("missing_one")


def test_torch_compile_traces_through_the_call(project):
    torch = pytest.importorskip("torch")
    project("helper.py", "def add(x):\n    for n in [1, 2]:\n        x = x + float(n)\n    return x\n")
    importlib.import_module("helper")
    delattr(builtins, CALL)
    setattr(builtins, CALL, insert._same)
    add = torch.compile(sys.modules["helper"].add, backend="eager", fullgraph=True)
    assert add(torch.ones(1)).item() == 4.0


def test_a_file_of_the_user_has_the_same_name_wherever_the_code_of_an_attempt_lies(tmp_path, monkeypatch):
    def names(place):
        monkeypatch.setattr(insert, "_directory", str(tmp_path / place / "scripts"))
        insert.portable.cache_clear()
        return [
            insert.portable(str(tmp_path / place / file)) for file in ("scripts/t.py", "scripts/a/b.py", "lib/c.py")
        ]

    try:
        assert names("ray-1/code") == names("ray-2/code") == ["t.py", "a/b.py", "../lib/c.py"]
        monkeypatch.setattr(insert, "_directory", "")
        insert.portable.cache_clear()
        assert insert.portable("/a/t.py") == "/a/t.py"
    finally:
        insert.portable.cache_clear()
