"""How a rank leaves: the code that the script meant, and the exception for the agent."""

import sys

import pytest

pytestmark = pytest.mark.process


@pytest.mark.parametrize(("how", "code"), [("end", 0), ("0", 0), ("3", 3)])
def test_the_exit_code_that_the_script_meant_is_in_the_ring(workplace, how, code):
    (left,) = workplace.run("leaves.py", how)
    assert (left.code, left.out) == (code, "the script's own exit handler\n"), left.err
    ((header, _),) = workplace.rings
    assert (header.exiting, header.exit_code) == (True, code)
    assert workplace.errors == []


def test_an_exception_is_reported_with_the_users_own_frame(workplace):
    (left,) = workplace.run("leaves.py", "raise")
    ((header, _),) = workplace.rings
    assert (left.code, header.exit_code) == (1, 1)
    (error,) = workplace.errors
    assert (error["type"], error["message"], error["rank"]) == ("RuntimeError", "bad batch [1, 2]", 0)
    assert (error["function"], error["source"]) == ("deep", 'raise RuntimeError(f"bad batch {batch}")')
    # The traceback on stderr is the one of a run without us.
    assert "RuntimeError: bad batch" in left.err and "paceline" not in left.err


def test_an_exception_counts_even_where_the_script_took_the_excepthook(workplace, written):
    script = written(
        "import sys\n"
        "import torch\n"
        "sys.excepthook = lambda *_: print('my own words', file=sys.stderr)\n"
        "def train():\n"
        "    raise KeyError('x')\n"
        "train()\n"
    )
    (left,) = workplace.run(sys.executable, script)
    assert (left.code, left.err) == (1, "my own words\n")
    (error,) = workplace.errors
    assert (error["type"], error["line"], error["source"]) == ("KeyError", 5, "raise KeyError('x')")


def test_a_syntax_error_is_at_its_own_line(workplace, written):
    script = written("x = 1\nif x\n    pass\n")
    (left,) = workplace.run(sys.executable, script)
    (error,) = workplace.errors
    assert left.code == 1
    assert (error["type"], error["file"], error["line"], error["source"]) == ("SyntaxError", script, 2, "if x")


def test_an_error_without_torch_is_reported_too(workplace, written):
    script = written("import json\n\ndef load():\n    return json.loads('{')\n\nload()\n")
    workplace.run(sys.executable, script, RANK="5")
    (error,) = workplace.errors
    assert (error["type"], error["rank"], error["line"], error["function"]) == ("JSONDecodeError", 5, 4, "load")


def test_a_code_that_nothing_shows_is_not_claimed(workplace, written):
    script = written(
        "import torch\n"
        "m = torch.nn.Linear(1, 1); m(torch.ones(1)).sum().backward(); torch.optim.SGD(m.parameters(), 0.1).step()\n"
        "raise SystemExit(4)\n"
    )
    (left,) = workplace.run(sys.executable, script)
    ((header, _),) = workplace.rings
    assert (left.code, header.exiting, header.exit_code) == (4, True, None)
