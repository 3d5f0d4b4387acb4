"""Ranks that are killed and go on from the state that their agent held: what the job does, and what it says."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from summing_job import KILL, RANK, attempts, begun, done, events, ran

from paceline.diagnosis.restart_costs import totals
from paceline.facts import Status

# A machine that is busy with something else gets more time: `patient`, in `run`. This limit ends what never ends.
pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

LOOP = "for batch in loader:\n    one(batch)\n"
OTHERWISE = """
def train():
    for batch in loader:
        one(batch)

def otherwise():
    train()

(otherwise if attempt() == 1 else train)()
"""
NO_LOOP = """
def all_from(number):
    one(number)
    if number < 30:
        all_from(number + 1)

all_from(1)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("server", [pytest.param("off", marks=pytest.mark.wide), "auto"])
def test_a_killed_rank_costs_no_step_and_no_restart(paceline, server):
    waits = {"waits": True} if server == "auto" else {}
    finished, lines = ran(paceline, "--nproc-per-node", "2", dies=[(0, 1, 6, KILL)], server=server, **waits)
    assert begun(lines, 0) == {0: (0, 0), 1: (0, 0)}
    # The step in which it was killed had been made, and was not over.
    assert begun(lines, 1) == {0: (5, 15), 1: (5, 15)} and done(lines) == [36, 36]
    assert {line["forked"] for line in lines if line.get("attempt") == 1 and "forked" in line} == {server == "auto"}
    for same in ("seed", "hash"):
        assert len({line[same] for line in lines if same in line}) == 1
    assert "resumed at step 5: rank 1 was killed (SIGKILL); " in finished.err and "1 restart, 1 resumed" in finished.err
    assert "F14" not in finished.err
    # What is found about the kill is for those who ask: the restart has said it.
    assert "paceline  restart 1 at step 5: rank 1 on" in finished.err and "--max-restarts" not in finished.err
    (found,) = [event for event in events(paceline, "cause") if event["attempt"] == 0]
    assert found["resumed"] and found["finding"]["ranks"] == [1]
    (told,) = events(paceline, "resumed")
    assert (told["attempt"], told["step"], told["rank"], told["steps_again"]) == (1, 5, 1, 0)
    # Both ends are recorded as those of the first attempt, with what is known of them. Rank 0 may fail before it is ended.
    ended = {(event["attempt"], event["rank"]): event["code"] for event in events(paceline, "rank_exited")}
    assert ended.pop((0, 0)) in (-9, 1) and ended == {(0, 1): -9, (1, 0): 0, (1, 1): 0}
    of_run = totals(paceline.evidence().events)
    assert (of_run.count, of_run.lost_steps, len(of_run.resumed)) == (1, 0, 1)
    (run,) = json.loads(paceline.run("ps", "--json").out)["runs"]
    assert (run["restart_count"], run["resume_count"], run["lost_step_count"]) == (1, 1, 0)


@pytest.mark.wide
def test_a_rank_that_is_killed_as_its_interpreter_shuts_down_goes_on_as_well(paceline):
    ends = """
class Killed:
    def __del__(self, kill=os.kill, pid=os.getpid()):
        kill(pid, 9)

last = Killed() if attempt() == 0 and rank == 1 else None
"""
    finished, lines = ran(paceline, "--nproc-per-node", "2", text=RANK + ends)
    # Every step was kept, so none is made again, and what was printed is shown once.
    assert attempts(lines) == {0, 1} and begun(lines, 1) == {} and done(lines) == [36, 36]
    assert "restart 1 at step 8: rank 1 on" in finished.err


@pytest.mark.wide
def test_a_kill_between_steps_before_the_first_head_begins_again(paceline):
    several = "for batch in loader:\n    [one(batch * 10 + part) for part in range(3)]\n"
    finished, lines = ran(paceline, "--nproc-per-node", "2", dies=[(0, 1, 12, KILL)], text=RANK.replace(LOOP, several))
    assert begun(lines, 1) == {0: (9, 0), 1: (9, 0)} and done(lines) == [1104, 1104]
    assert "no step had been kept yet: the job begins again from the beginning" in finished.err


@pytest.mark.slow
def test_ranks_of_local_hosts_go_on_together(paceline):
    finished, lines = ran(paceline, "--local-hosts", "2", "--nproc-per-node", "1", dies=[(0, 1, 4, KILL)])
    assert begun(lines, 1) == {0: (3, 6), 1: (3, 6)} and done(lines) == [36, 36]
    assert len({line["seed"] for line in lines if "seed" in line}) == 1
    assert "rank 1 was killed (SIGKILL)" in finished.err and "1 restart, 1 resumed" in finished.err


@pytest.mark.slow
def test_a_killed_loader_worker_is_a_killed_rank(paceline):
    finished, lines = ran(paceline, "--nproc-per-node", "2", dies=[(0, 1, 4, "worker")], workers=1)
    assert begun(lines, 1) == {0: (3, 6), 1: (3, 6)} and done(lines) == [36, 36]
    assert "resumed at step 3: rank 1 lost a loader worker; " in finished.err


@pytest.mark.wide
def test_a_step_that_fails_three_times_ends_the_job_with_the_ranks_own_code(paceline):
    dies = [(attempt, 0, 3, int(signal.SIGSEGV)) for attempt in range(9)]
    finished, lines = ran(paceline, "--max-restarts", "5", code=139, dies=dies)
    assert attempts(lines) == {0, 1, 2}
    assert "error[F07]: step 2 failed 3 times: it is the script" in finished.err
    assert "ended by SIGSEGV" in finished.err


@pytest.mark.slow
def test_a_rank_that_did_not_find_what_was_kept_ends_the_job_with_205(paceline):
    finished, lines = ran(paceline, "--max-restarts", "5", code=205, dies=[(0, 0, 3, KILL)], changes=True)
    assert attempts(lines) == {0, 1}
    assert "error[F03]: the state or the batch after resuming" in finished.err
    assert "is reported as 1" not in finished.err


@pytest.mark.slow
def test_a_state_that_cannot_be_put_back_makes_the_job_begin_again_without_resuming(paceline):
    finished, lines = ran(paceline, "--nproc-per-node", "2", dies=[(0, 1, 6, KILL)], text=RANK.replace(LOOP, OTHERWISE))
    assert begun(lines, 2) == {0: (0, 0), 1: (0, 0)} and done(lines) == [36, 36]
    said = "the state of step 5 could not be put back: the job begins again from the beginning, and keeps no more state (F05)"
    assert f"paceline  restart 2 (0 left): {said}" in finished.err
    assert "the kept state cannot be put back: " in finished.err and "is reported as 1" not in finished.err


def test_a_205_of_the_script_itself_is_reported_as_1(paceline):
    finished = paceline.run("run", "--resume", "auto", paceline.script("train.py", "import sys\nsys.exit(205)\n"))
    assert finished.code == 1 and "the script's own code 205 is reported as 1" in finished.err


def test_where_a_rank_refuses_to_keep_its_state_a_kill_is_what_it_was(paceline):
    finished, _ = ran(paceline, code=137, dies=[(0, 0, 25, KILL)], text=RANK.replace(LOOP, NO_LOOP))
    assert paceline.evidence().run.status is Status.FAILED and "SIGTERM" in str(events(paceline, "stopping"))
    assert "(F11)" in finished.err and "resumed" not in finished.err


EVALUATES = """
def evaluate():
    return sum(batch.sum().item() for batch in torch.utils.data.DataLoader(torch.arange(6.0), batch_size=2))

for epoch in range(7):
    for batch in loader:
        one(batch + 8 * epoch)
    evaluate()
"""


@pytest.mark.slow
def test_an_evaluation_in_a_generator_expression_is_no_loop_around_the_training(paceline):
    text = RANK.replace(LOOP, EVALUATES)
    finished, _ = ran(paceline, "--nproc-per-node", "2", dies=[(0, 1, 50, KILL)], text=text)
    resumed = re.search(r"resumed at step (\d+): rank 1 was killed", finished.err)
    assert resumed and int(resumed[1]) > 24 and "F13" not in finished.err, finished.err


@pytest.mark.slow
def test_a_torch_that_was_never_tried_is_named_though_it_refuses_before_there_is_a_rank(paceline):
    old = "from paceline.parts.resume.worker import session\nsession._OLDEST_TORCH = (99, 0)\nimport torch\n"
    finished, _ = ran(paceline, code=137, dies=[(0, 0, 6, KILL)], text=RANK.replace("import torch\n", old, 1))
    said = "no state is kept, a restart begins from the beginning: resume has never been tried with torch 2."
    assert finished.err.count(said) == 1 and "(F13)" in finished.err and "resumed" not in finished.err


@pytest.mark.slow
def test_a_death_before_the_first_kept_step_begins_again_and_says_so(paceline):
    finished, lines = ran(paceline, dies=[(0, 0, 1, KILL)])
    assert "no step had been kept yet: the job begins again from the beginning" in finished.err and done(lines) == [36]


@pytest.mark.slow
def test_ranks_that_make_steps_and_keep_nothing_are_stopped_as_without_it(paceline):
    text = RANK.replace("import torch\n", "os.environ.pop('PACELINE_STATE_FD')\nimport torch\n", 1)
    finished, _ = ran(paceline, code=137, dies=[(0, 0, 24, KILL)], items=30, text=text)
    assert "SIGTERM" in str(events(paceline, "stopping")) and "begins again" not in finished.err


LOOKS = """
import json, os, sys
shown = {name: value for name, value in os.environ.items() if name in ("PACELINE_STATE_FD", "PYTHONHASHSEED")}
print(json.dumps({"shown": shown, "memory": ["paceline-state" in os.readlink(f"/proc/self/fd/{fd}") for fd in "3456789" if
    os.path.exists(f"/proc/self/fd/{fd}")]}), flush=True)
"""


@pytest.mark.slow_but_first
@pytest.mark.parametrize("options", [(), ("--resume", "off"), ("--max-restarts", "1", "--set", "fork_server=auto")])
def test_without_resume_there_is_no_trace_of_it(paceline, options):
    finished = paceline.run("run", *options, paceline.script("train.py", LOOKS), PACELINE_STATE_FD="7")
    assert finished.code == 0, finished.err
    found = json.loads(finished.out)
    assert found["shown"] == {} and True not in found["memory"]


def test_a_hash_seed_of_the_user_stays(paceline):
    finished = paceline.run("run", "--resume", "auto", paceline.script("train.py", LOOKS), PYTHONHASHSEED="random")
    assert json.loads(finished.out)["shown"]["PYTHONHASHSEED"] == "random"


@pytest.mark.slow
def test_a_rank_that_hangs_once_costs_no_step(paceline):
    hang = ("--on-hang", "resume")
    finished, lines = ran(paceline, "--nproc-per-node", "2", *hang, dies=[(0, 1, 6, "hang")])
    assert begun(lines, 1) == {0: (5, 15), 1: (5, 15)} and done(lines) == [36, 36]
    assert "resumed at step 5: rank 1 hung; " in finished.err and "(F01)" in finished.err
    assert len(events(paceline, "hang_confirmed")) == 1
    # What was found about the hang is said, as without resuming.
    assert "stall[N01]" in finished.err
    (told,) = events(paceline, "resumed")
    assert (told["step"], told["rank"], told["signal"], told["hung"]) == (5, 1, None, True)


@pytest.mark.wide
def test_a_rank_that_always_hangs_at_one_step_ends_the_job_with_202(paceline):
    hangs = [(attempt, 1, 3, "hang") for attempt in range(9)]
    options = ("--nproc-per-node", "2", "--max-restarts", "5", "--on-hang", "resume")
    finished, lines = ran(paceline, *options, code=202, dies=hangs)
    assert attempts(lines) == {0, 1, 2}
    assert "error[F07]: step 2 failed 3 times: it is the script" in finished.err
    assert "stopped on a confirmed hang: rank 1" in finished.err


@pytest.mark.wide
def test_a_hang_before_a_step_was_kept_ends_the_job_with_202(paceline):
    finished, lines = ran(paceline, "--nproc-per-node", "2", "--on-hang", "resume", code=202, dies=[(0, 1, 1, "hang")])
    assert attempts(lines) == {0} and "resumed" not in finished.err


@pytest.fixture
def of_limited_memory(paceline) -> Iterator[tuple[str, ...]]:
    """What is put before a command to run it in a memory control group of 1 GiB."""
    group = Path("/sys/fs/cgroup/memory") / paceline.environment["PACELINE_TEST"]
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(1 << 30))
    except OSError:
        pytest.skip("no memory control group can be made here")
    yield ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    group.rmdir()


@pytest.mark.slow
def test_a_rank_that_the_kernel_kills_for_memory_is_resumed(paceline, of_limited_memory):
    finished, lines = ran(paceline, dies=[(0, 0, 4, "memory")], prefix=of_limited_memory)
    assert begun(lines, 1) == {0: (3, 6)} and done(lines) == [36] and "resumed at step 3" in finished.err
    assert [event["finding"]["code"] for event in events(paceline, "cause")] == ["C02"]


@pytest.mark.wide
def test_a_second_kill_for_memory_at_another_step_ends_the_job(paceline, of_limited_memory):
    dies = [(0, 0, 4, "memory"), (1, 0, 7, "memory")]
    finished, lines = ran(paceline, code=137, dies=dies, prefix=of_limited_memory)
    assert attempts(lines) == {0, 1} and "resumed at step 3" in finished.err
    assert "crash[C02]: killed at its memory limit: rank 0" in finished.err
    reasons = [event["reason"] for event in events(paceline, "attempt_ended")]
    assert reasons[1].endswith("; it was killed for memory before, and once more is not tried")


def test_a_program_that_is_not_python_runs_without_it_and_one_line_says_so(paceline):
    script = paceline.script("train.sh", "echo ${PACELINE_STATE_FD:-none}\n")
    finished = paceline.run("run", "--resume", "auto", script)
    assert finished.code == 0 and finished.out == "none\n"
    assert finished.err.count("--resume is off: the program is not a script or a module of this Python") == 1
