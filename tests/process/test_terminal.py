"""What a person sees of a running job: their own output as it was written, and paceline's words on lines of their own."""

import os
import subprocess
import sys

import pytest
from patience import patient

pytestmark = pytest.mark.process

UNFINISHED = """
import sys, time
sys.stdout.write("progress 10%")
sys.stdout.flush()
time.sleep(2.5)
sys.stdout.write("\\rprogress 20%")
"""


@pytest.mark.slow
def test_an_unfinished_line_is_never_erased_on_a_terminal(paceline):
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "paceline", "run", paceline.script("bar.py", UNFINISHED)]
    environment = {**paceline.environment, "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen(command, cwd=paceline.directory, env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 65536):
            seen += chunk
    except OSError:
        # A terminal whose other side has gone answers with EIO.
        assert process.wait(patient(30)) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    # The status line is repainted each second; between the two halves of the user's line there is none of it.
    assert b"progress 10%\rprogress 20%\r\ndone  r-" in seen


def test_the_summary_begins_on_a_line_of_its_own(paceline):
    script = paceline.script("open.py", "import sys\nsys.stderr.write('no end')\n")
    assert "\nno end\ndone  r-" in paceline.run("run", script).err


@pytest.mark.slow_but_first
@pytest.mark.parametrize("streams", ["2>/dev/full", ">/dev/full 2>/dev/full", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_a_job_whose_words_nobody_can_read_ends_with_its_own_code(paceline, streams):
    ends = paceline.script("ends.py", "print('here', flush=True)\nraise SystemExit(7)\n")
    command = f"exec {sys.executable} -m paceline run --nproc-per-node 2 {ends} {streams}"
    ended = subprocess.run(["sh", "-c", command], cwd=paceline.directory, env=paceline.environment, timeout=patient(60))
    assert ended.returncode == 7
    assert len(list((paceline.directory / ".paceline" / "runs").glob("*/hosts/*/attempt_0/rank_*.out"))) == 2


@pytest.mark.slow
def test_an_answer_that_does_not_fit_on_the_disk_is_an_error_in_four_parts(paceline):
    command = f"{sys.executable} -m paceline help > /dev/full"
    ended = subprocess.run(
        ["sh", "-c", command],
        env=paceline.environment,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert ended.returncode == 2 and ended.stderr.startswith("error[U22]")


LETTER_BY_LETTER = """
import os, sys
letter = chr(65 + int(os.environ["RANK"]))
for line in range(10):
    for stream in (sys.stdout, sys.stderr):
        for _ in range(20):
            stream.write(letter)
            stream.flush()
        stream.write("\\n")
        stream.flush()
"""


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [("--nproc-per-node", "16"), ("--local-hosts", "2", "--nproc-per-node", "8")])
def test_lines_of_ranks_that_write_letter_by_letter_do_not_mix(paceline, hosts):
    command = [sys.executable, "-m", "paceline", "run", *hosts, paceline.script("letters.py", LETTER_BY_LETTER)]
    ended = subprocess.run(
        command,
        cwd=paceline.directory,
        env=paceline.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patient(120),
    )
    lines = [line for line in ended.stdout.splitlines() if line.isupper()]
    assert ended.returncode == 0 and all(len(set(line)) == 1 for line in lines), ended.stdout
    text = "".join(lines)
    assert {letter: text.count(letter) for letter in set(text)} == {chr(65 + rank): 400 for rank in range(16)}
