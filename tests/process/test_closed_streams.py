"""Standard streams that were closed before the start, as a daemon does: ranks have all three, and what they print is in the recording.

torchrun's ranks lack those that are closed: `print` is lost, and `sys.stderr.write` is an AttributeError.
"""

import itertools
import json

import pytest

pytestmark = pytest.mark.process

WAYS = [closed for count in range(4) for closed in itertools.combinations((0, 1, 2), count)]
SCRIPT = """
import os, sys
assert None not in (sys.stdin, sys.stdout, sys.stderr)
assert sys.stdin.read() == ""
own = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
assert min(own) > 2
print("out")
sys.stderr.write("err\\n")
os.write(1, b"written\\n")
"""


@pytest.mark.slow_but_first
@pytest.mark.parametrize("closed", WAYS, ids=lambda closed: "".join(map(str, closed)) or "none")
def test_ranks_have_three_streams_whichever_the_launcher_lacks(paceline, closed):
    closing = " ".join(f"{number}>&-" for number in closed)
    prefix = ("sh", "-c", f'exec "$@" {closing}', "sh")
    finished = paceline.start("run", paceline.script("job.py", SCRIPT), prefix=prefix).wait()
    assert finished.code == 0, finished.err
    (run,) = (paceline.directory / ".paceline" / "runs").iterdir()
    texts = {path.name: path.read_text() for path in run.rglob("rank_0.*") if path.suffix in (".out", ".err")}
    assert texts == {"rank_0.out": "out\nwritten\n", "rank_0.err": "err\n"}
    assert (finished.out == "out\nwritten\n") == (1 not in closed)
    # What paceline says goes into no file that got the number of a closed stream.
    assert all(json.loads(line) for line in (run / "events.jsonl").read_text().splitlines())
    assert finished.err == "" or 2 not in closed
