"""Which processes a signal of the agent goes to."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from paceline.launch.agent.workers import Workers, _Worker

# A shell script's stand-in with a helper of its own; below it a rank with a worker, which a fork server may have started.
RANK = """
import json, multiprocessing, os, sys

def work(connection):
    connection.send(os.getpid())
    connection.recv()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    ours, theirs = context.Pipe()
    worker = context.Process(target=work, args=(theirs,), daemon=True)
    worker.start()
    print(json.dumps([os.getpid(), ours.recv()]), flush=True)
    sys.stdin.read()
    ours.send("end")
    worker.join()
"""
PROGRAM = """
import subprocess, sys
helper = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
print(helper.pid, flush=True)
subprocess.run([sys.executable, *sys.argv[1:]])
helper.wait()
"""


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_a_signal_does_not_go_to_the_workers_of_a_rank_however_they_were_started(tmp_path, start_method):
    rank_file = tmp_path / "rank.py"
    rank_file.write_text(RANK)
    argv = [sys.executable, "-c", PROGRAM, str(rank_file), start_method]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        helper = int(program.stdout.readline())
        rank, worker = json.loads(program.stdout.readline())
        here = dict.fromkeys((program.pid, helper, rank, worker), 0)
        processes = SimpleNamespace(here=lambda: here, carries_mark=lambda pid: pid in here)
        workers = Workers(processes, None, print, print, rank_processes=lambda: [rank], whole_group=True)
        workers._workers[program.pid] = _Worker(SimpleNamespace(rank=0), program, -1)
        assert workers.targets() == [program.pid, rank, helper]
