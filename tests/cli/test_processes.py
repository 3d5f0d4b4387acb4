"""What only a process of its own can show: what is imported, a broken pipe, Ctrl-C."""

import os
import signal
import subprocess
import sys
import time

import pytest
from patience import patient

from paceline.cli import all_verbs

pytestmark = pytest.mark.process

LOADED = """
import sys
from paceline.cli import main
code = main(sys.argv[1:])
heavy = sorted({"torch", "numpy", "rich", "asyncio", "multiprocessing"} & set(sys.modules))
sys.stderr.write(f"LOADED {' '.join(heavy)}")
"""


def paceline(*argv, cwd, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "paceline", *argv],
        cwd=cwd,
        env={**os.environ, "XDG_STATE_HOME": str(cwd), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


@pytest.mark.parametrize(
    "argv",
    [["--help"], *([verb, "--help"] for verb in all_verbs()), ["ps"], ["help"], ["help", "U04"], ["top"], ["env"]],
)
def test_no_verb_imports_torch(argv, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *argv],
        cwd=tmp_path,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    loaded = done.stderr.rpartition("LOADED")[2].split()
    assert "LOADED" in done.stderr and "torch" not in loaded
    if argv[0] not in ("env", "run"):
        assert loaded == []


def test_the_list_of_verbs_loads_their_names_and_no_more(tmp_path):
    seen = "import sys; from paceline.cli import main; main(['--help']); print('LOADED', *sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", seen], cwd=tmp_path, capture_output=True, text=True, check=True)
    loaded = {name for name in done.stderr.rpartition("LOADED")[2].split() if name.startswith("paceline.")}
    kernel = {name for name in loaded if not name.startswith("paceline.parts")}
    assert "  submit " in done.stdout and "paceline.parts.web.part" in loaded
    assert kernel <= {
        *("paceline.cli", "paceline.errors", "paceline.terminal_text", "paceline.part", "paceline.option"),
        *("paceline.recording", "paceline.recording.layout"),
    }


def test_nothing_is_imported_before_ctrl_c_is_caught(tmp_path):
    seen = "import sys; before = {*sys.modules}; import paceline.__main__; print(sorted({*sys.modules} - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", seen],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['paceline', 'paceline.__main__']"


def test_a_reader_that_leaves_is_no_error(recording, tmp_path):
    made = recording("r-aaaaaa")
    made.identity()
    made.log("algo-1", 0, b"line\n" * 200_000)
    made.finish()
    process = paceline("logs", cwd=tmp_path)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(patient(30)) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.fixture
def following(recording, tmp_path):
    """`paceline logs --follow` of a run that lasts (its agent is this test), after its first line."""
    made = recording("r-aaaaaa")
    made.identity()
    made.log("algo-1", 0, b"first\n")
    process = paceline("logs", "--follow", cwd=tmp_path)
    assert process.stdout.readline() == b"0 | first\n"
    yield made, process
    process.kill()
    process.communicate()


def test_lines_are_followed_as_they_come_until_the_run_ends(following):
    made, process = following
    with made.directory.log_file("algo-1", 0, 0, "out").open("ab") as log:
        log.write(b"second\n")
        log.flush()
        assert process.stdout.readline() == b"0 | second\n"
        made.log("algo-2", 1, b"from a new host\n")
        assert process.stdout.readline() == b"algo-2:1 | from a new host\n"
        log.write(b"no end")
    made.finish()
    assert process.wait(patient(30)) == 0
    assert process.stdout.read() == b"algo-1:0 | no end\n"


def test_ctrl_c_is_130_and_silent(following):
    _, process = following
    process.send_signal(signal.SIGINT)
    assert process.wait(patient(30)) == 130
    assert process.stderr.read() == b""


def test_top_on_a_terminal_repaints_until_the_run_ends(recording, tmp_path):
    made = recording("r-aaaaaa")
    made.identity(started_ns=time.time_ns())
    made.segment("algo-1", 0)
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", "top", "--interval", "0.05"],
        cwd=tmp_path,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"},
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    try:
        seen = b""
        while seen.count(b"\x1b[H") < 3:
            seen += os.read(ours, 65536)
        assert b"r-aaaaaa  train  InProgress" in seen
        made.finish()
        while b"Completed" not in seen:
            seen += os.read(ours, 65536)
        assert process.wait(patient(30)) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
