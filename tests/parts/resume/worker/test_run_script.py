"""A program that run_script.py runs finds what a new process finds, and ends as a new process ends."""

import json
import signal
import subprocess
import sys
import textwrap

import pytest
from patience import patient
from process_facts import FACTS

pytestmark = pytest.mark.process

SAYS_FACTS = f"{FACTS}\nprint(json.dumps(facts))"
# Says whether the loops of the file have the call.
SAYS_CALL = "def f():\n    for x in []: print(x)\nprint('__paceline_loop__' in f.__code__.co_names)\n"


@pytest.fixture
def both(workplace, repository, tmp_path):
    """Runs a program as a new process and through the runner; returns code, output and errors of each."""
    runner = str(repository / "src" / "paceline" / "parts" / "resume" / "worker" / "run_script.py")

    def run(*argv, options=("-u",), **environment):
        found = []
        # No script here imports torch, so no session begins and asks for the descriptor.
        environment = {"PACELINE_STATE_FD": "99", **workplace.environment, **environment}
        for front in ([], [runner]):
            process = subprocess.Popen(
                [sys.executable, *options, *front, *argv],
                cwd=tmp_path,
                env={name: value for name, value in environment.items() if value is not None},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            out, err = process.communicate(timeout=patient(60))
            found.append((process.returncode, out, err))
        return found

    return run


@pytest.fixture
def same(both):
    """Runs both ways, and both are the same."""

    def run(*argv, **more):
        new, ran = both(*argv, **more)
        assert ran == new
        return new

    return run


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        (["train.py", "--lr", "a b", "-m"], ["-u"]),
        (["./train.py"], ["-u"]),
        (["own/../own/./train.py", "x"], ["-u"]),
        (["{here}/train.py"], ["-u", "-W", "ignore", "-X", "dev"]),
        (["linked.py"], ["-u"]),
        (["train.py"], ["-u", "-P"]),
        (["-m", "train", "x"], ["-u"]),
        (["-m", "own.train", "--", "x"], ["-u"]),
        (["-m", "own"], ["-u"]),
    ],
)
def test_the_program_finds_what_a_new_process_finds(both, write, tmp_path, argv, options):
    write("train.py", SAYS_FACTS)
    write("own/train.py", SAYS_FACTS)
    write("own/__main__.py", SAYS_FACTS)
    (tmp_path / "linked.py").symlink_to("own/train.py")
    new, ran = both(*[word.format(here=tmp_path) for word in argv], options=options)
    assert (new[0], ran[0]) == (0, 0), ran[2]
    expected, found = json.loads(new[1]), json.loads(ran[1])
    assert found.pop("finders") == expected.pop("finders") + 1, "the one that watches imports"
    assert found == expected


def test_loops_of_the_script_and_of_its_modules_get_the_call(both, write):
    write("train.py", f"{SAYS_CALL}import mine, own.part")
    write("mine.py", SAYS_CALL)
    write("own/part.py", SAYS_CALL)
    for argv in (["train.py"], ["-m", "train"]):
        new, ran = both(*argv)
        assert (new, ran) == ((0, "False\n" * 3, ""), (0, "True\n" * 3, ""))


def test_without_a_state_buffer_the_script_runs_unchanged(same, write):
    write("train.py", f"{SAYS_CALL}{SAYS_FACTS}")
    for without in ("PACELINE_STATE_FD", "PACELINE_RUN_ID", "PYTHONPATH"):
        code, out, _ = same("train.py", "x", **{without: None})
        assert (code, out.splitlines()[0]) == (0, "False")


@pytest.mark.parametrize(
    "end",
    [
        "import sys; sys.exit(7)",
        "import sys; sys.exit('sorry')",
        "import sys; sys.exit()",
        "raise SystemExit(None)",
        "raise ValueError('mine')",
        "raise KeyboardInterrupt",
        "import os; os._exit(9)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "1 +",
        "x = '''",
        "def f():\n    1 / 0\ntry:\n    f()\nexcept ZeroDivisionError as error:\n    raise OSError(5, 'x') from error",
        "import atexit; atexit.register(print, 'at exit'); raise ValueError",
        "import threading; threading.Thread(target=lambda: print('thread')).start(); raise ValueError",
        "import sys; sys.excepthook = lambda *found: print(found[0], found[2].tb_lineno)\nraise ValueError",
        "import sys, atexit, traceback; atexit.register(lambda: traceback.print_tb(sys.last_traceback)); raise ValueError",
        "import missing_module",
        "import broken",
        "for x in [1]:\n    y = x\n    for z in 5:\n        print(z)",
    ],
)
@pytest.mark.parametrize("off", ["", "all"])
def test_the_program_ends_as_a_new_process_does(same, write, end, off):
    write("train.py", f"print('begin')\n{end}\n")
    write("broken.py", "for x in\n")
    same("train.py", PACELINE_OFF=off)


@pytest.mark.parametrize("end", ["raise ValueError('mine')", "import sys; sys.exit(3)", "1 +", "import missing_module"])
def test_a_module_ends_as_in_a_new_process(same, write, end):
    write("own/__init__.py", "")
    write("own/train.py", f"print('begin')\n{end}\n")
    same("-m", "own.train")


@pytest.mark.parametrize(
    "argv", [["missing.py"], ["-m", "missing"], ["-m", "own.missing"], ["own"], ["empty"], ["latin.py"], ["null.py"]]
)
def test_what_cannot_be_run_ends_as_in_a_new_process(same, write, tmp_path, argv):
    write("own/__init__.py", "")
    write("own/__main__.py", SAYS_CALL)
    write("empty/nothing", "")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    (tmp_path / "null.py").write_bytes(b"x = 1\0\n")
    same(*argv)


def test_an_interrupt_ends_the_program_as_a_new_process(same, write):
    write("train.py", "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    code, _, err = same("train.py")
    assert code == -signal.SIGINT and "KeyboardInterrupt" in err


def test_children_and_pickles_of_the_main_module(same, write):
    write(
        "train.py",
        """
        import inspect, multiprocessing, pickle, subprocess, sys, warnings
        class Point:
            def __init__(self, x):
                self.x = x
        def double(point):
            found = []
            for one in [point.x, point.x]:
                found.append(one)
            return sum(found), __name__
        if __name__ == "__main__":
            print(pickle.loads(pickle.dumps(Point(3))).x, inspect.getsource(double))
            warnings.warn("look")
            for method in ("spawn", "forkserver", "fork"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(method, pool.map(double, [Point(2)]))
            print(subprocess.run([sys.executable, "-c", "import train; print(train.double(train.Point(1)))"]).returncode)
        """,
    )
    code, out, err = same("train.py")
    assert code == 0 and "spawn [(4, '__mp_main__')]" in out and 'warnings.warn("look")' in err
    code, out, _ = same("-m", "train")
    assert code == 0


def test_the_code_of_a_function_runs_in_a_child(same, write):
    write(
        "train.py",
        """
        import marshal, subprocess, sys
        def double():
            for one in [1, 2]:
                print(one)
            while one < 4:
                one = max(one + 1, 0)
            print(one)
        child = "import marshal, sys; exec(marshal.load(sys.stdin.buffer))"
        subprocess.run([sys.executable, "-c", child], input=marshal.dumps(double.__code__))
        """,
    )
    assert same("train.py") == (0, "1\n2\n4\n", "")


def test_loops_of_a_script_without_torch_run(same, write):
    write("train.py", "n = 0\nwhile n < 2:\n    n += len('x')\nfor x in [n]:\n    print(x)\nimport mine")
    write("mine.py", "m = 3\nwhile m:\n    m -= abs(1)\n    print(m)\n")
    assert same("train.py") == (0, "2\n2\n1\n0\n", "")


def test_a_users_module_of_a_name_that_we_load_is_imported(same, write):
    write("train.py", f"import ast, textwrap\nprint(ast.mine)\n{SAYS_CALL}")
    write("ast.py", "mine = 1")
    assert same("train.py")[1] == "1\nFalse\n"


def test_a_users_own_paceline_keeps_its_name(same, write):
    write("train.py", "import paceline\nprint(paceline.mine)")
    write("paceline.py", "mine = 1")
    assert same("train.py")[1] == "1\n"


def test_a_script_of_a_package_is_not_changed(same, write):
    write("lib/site-packages/train.py", SAYS_CALL)
    assert same("lib/site-packages/train.py")[1] == "False\n"


def test_a_module_that_the_script_writes_while_it_runs_is_found(same, write):
    write(
        "train.py",
        """
        import importlib, pathlib
        pathlib.Path("late.py").write_text("x = 5")
        importlib.invalidate_caches()
        import late
        print(late.x)
        """,
    )
    assert same("train.py")[1] == "5\n"
