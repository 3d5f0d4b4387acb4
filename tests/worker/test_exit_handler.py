"""How a rank leaves: the code that the script meant, and the exception for the agent."""

import signal
import sys

import pytest

pytestmark = pytest.mark.process


@pytest.mark.slow_but_first
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
    assert "RuntimeError: bad batch" in left.err and "src/paceline" not in left.err


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_code_that_nothing_shows_is_not_claimed(workplace, written):
    script = written(
        "import torch\n"
        "m = torch.nn.Linear(1, 1); m(torch.ones(1)).sum().backward(); torch.optim.SGD(m.parameters(), 0.1).step()\n"
        "raise SystemExit(4)\n"
    )
    (left,) = workplace.run(sys.executable, script)
    ((header, _),) = workplace.rings
    assert (left.code, header.exiting, header.exit_code) == (4, True, None)


def test_a_keyboard_interrupt_ends_the_process_by_sigint_as_without_us(workplace, written):
    script = written("raise KeyboardInterrupt\n")
    (left,) = workplace.run(sys.executable, script)
    assert left.code == -signal.SIGINT
    (error,) = workplace.errors
    assert (error["type"], error["line"]) == ("KeyboardInterrupt", 1)


TRAINED = (
    "import torch\n"
    "m = torch.nn.Linear(1, 1); m(torch.ones(1)).sum().backward(); torch.optim.SGD(m.parameters(), 0.1).step()\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("", "exit(3)\n", 3),
        pytest.param("from sys import exit\n", "exit(3)\n", 3, marks=pytest.mark.wide),
        pytest.param(
            "import argparse\ntry: argparse.ArgumentParser().parse_args(['--nothing'])\nexcept SystemExit: pass\n",
            "",
            0,
            marks=pytest.mark.wide,
        ),
    ],
)
def test_a_rank_below_a_shell_ends_with_its_own_code_and_whole_files(workplace, written, tmp_path, before, after, code):
    metrics = tmp_path / "metrics.csv"
    script = written(f"{before}{TRAINED}file = open({str(metrics)!r}, 'w'); file.write('never flushed')\n{after}")
    shell = written(f'"{sys.executable}" {script}\necho "ended with $?"\n', "train.sh")
    (left,) = workplace.run("bash", shell)
    assert (left.out, metrics.read_text()) == (f"ended with {code}\n", "never flushed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "known"),
    [
        # Sorted imports: the name is copied before torch comes.
        ("from sys import exit as leave, exit\n", "exit(3)\n", 3),
        pytest.param("", "quit(3)\n", None, marks=pytest.mark.wide),
        pytest.param(
            "",
            "import threading, sys; t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()\n",
            0,
            marks=pytest.mark.wide,
        ),
        ("import sys\nimport torch\ntry: sys.exit(3)\nexcept BaseException: pass\n", "", 0),
    ],
)
def test_only_the_code_that_the_process_leaves_with_is_claimed(workplace, written, before, after, known):
    (left,) = workplace.run(sys.executable, written(before + TRAINED + after))
    ((header, _),) = workplace.rings
    assert (header.exit_code, left.code) == (known, 3 if known is None else known)


@pytest.mark.slow
def test_an_exception_that_cannot_be_spelled_is_reported_all_the_same(workplace, written):
    script = written("class Broken(Exception):\n    def __str__(self): raise ValueError\nraise Broken\n")
    workplace.run(sys.executable, script)
    (error,) = workplace.errors
    assert (error["type"], error["message"], error["line"]) == ("Broken", "<exception str() failed>", 3)


LEAVES = """\
import os, signal, sys
import torch

def leave(number, frame):
    signal.signal(number, signal.SIG_DFL)
    {call}

m = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(m.parameters(), 0.1)
m(torch.ones(1)).sum().backward()
optimizer.step()
{end}
"""


@pytest.mark.parametrize(
    ("call", "end", "line", "words"),
    [
        ("sys.exit(0)", "signal.signal(signal.SIGTERM, leave); os.kill(os.getpid(), signal.SIGTERM)", 6,
         " in leave, the handler of SIGTERM, by sys.exit(0)"),
        pytest.param("os._exit(0)", "signal.signal(signal.SIGUSR1, leave); os.kill(os.getpid(), signal.SIGUSR1)", 6,
                     " in leave, the handler of SIGUSR1, by os._exit(0)", marks=pytest.mark.slow),
        pytest.param("pass", "os._exit(0)", 12, ", by os._exit(0)", marks=pytest.mark.slow),
        pytest.param("pass", "sys.exit()", 12, ", by sys.exit()", marks=pytest.mark.slow),
        pytest.param("pass", "pass", 0, "", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_the_call_that_ended_the_script_is_in_the_ring_with_the_signal_whose_handler_made_it(
    workplace, written, call, end, line, words
):
    script = written(LEAVES.format(call=call, end=end))
    (left,) = workplace.run(sys.executable, script)
    ((header, _),) = workplace.rings
    assert left.code == 0, left.err
    assert header.left_at == (f"{script}:{line}{words}" if words else "")
