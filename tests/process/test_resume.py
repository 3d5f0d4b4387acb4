"""Ranks that are killed and go on from the state that their agent held. The script does by hand what the rank's part of paceline does."""

import json
import signal

import pytest

from paceline.diagnosis.restarts import totals
from paceline.facts import Status

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

# Sums the numbers of its steps, and dies where `dies` says: attempt, rank, step, signal.
RANK = """
import json, os, signal, sys, time, zlib
import torch
import torch.distributed as dist
from paceline.recording.state_buffer import SLOT_AT, StateCell, Keeping, StateHeader

plan = json.loads(sys.argv[1])
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
descriptor = int(os.environ["PACELINE_STATE_FD"])
header = StateHeader(descriptor)
cells = header.cells
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
begun, total = cells[StateCell.RESUME_STEP], 0
if begun:
    total = json.loads(header.plain(header.slot_of(begun)))
    cells[StateCell.RESUMED_NS] = time.time_ns()
elif plan.get("refuses"):
    cells[StateCell.KEEPING] = Keeping.REFUSED

def fork_server_is_ready():
    def waits(pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"worker/fork_server.py" not in file.read():
                    return False
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"PACELINE_MARK={os.environ['PACELINE_MARK']}".encode() not in file.read():
                    return False
            with open(f"/proc/{pid}/syscall") as file:
                return file.read().split()[0] in ("47", "212")
        except OSError:
            return False
    return any(waits(pid) for pid in os.listdir("/proc") if pid.isdigit())

def step(number):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    cells[StateCell.STEP_COUNT] = number
    cells[StateCell.STEP_NS] = time.time_ns()

def keep(number):
    slot, text = number % 2, json.dumps(total).encode()
    cells[StateCell.STEP_0 + slot] = 0
    os.pwrite(descriptor, text, SLOT_AT[slot])
    cells[StateCell.TENSOR_BYTES_0 + slot] = 0
    cells[StateCell.PLAIN_BYTES_0 + slot] = len(text)
    cells[StateCell.PLAIN_CRC_0 + slot] = zlib.crc32(text)
    cells[StateCell.STEP_0 + slot] = number
    cells[StateCell.KEEPING] = Keeping.KEPT

print(json.dumps({
    "attempt": attempt, "rank": rank, "begun": begun, "total": total, "seed": os.environ.get("PYTHONHASHSEED"),
    "hash": hash("a"), "room": cells[StateCell.ROOM_BYTES], "forked": b"fork_server" in open("/proc/self/cmdline", "rb").read(),
}), flush=True)
for number in range(begun + 1, 9):
    if plan.get("waits") and attempt == 0 and number == 3:
        ready = torch.zeros(1)
        while not ready:
            time.sleep(0.05)
            ready = torch.tensor([float(fork_server_is_ready())])
            dist.all_reduce(ready, dist.ReduceOp.MIN)
    step(number)
    total += number
    if not plan.get("refuses"):
        keep(number)
    for of_attempt, of_rank, of_step, how in plan["dies"]:
        if [attempt, rank, number] == [of_attempt, of_rank, of_step]:
            if how == "mismatch":
                cells[StateCell.KEEPING] = Keeping.STOPPED
            if isinstance(how, int):
                os.kill(os.getpid(), how)
            sys.exit(205)
    dist.barrier()
print(json.dumps({"rank": rank, "done": total}), flush=True)
dist.destroy_process_group()
"""
KILL = int(signal.SIGKILL)


def ran(paceline, *options, code=0, dies=(), text=RANK, **plan):
    script = paceline.script("train.py", text)
    # The script keeps its state by hand.
    argv = ("run", "--resume", "auto", *options, script, json.dumps({"dies": dies, **plan}))
    finished = paceline.run(*argv, timeout=200, PACELINE_OFF="resume")
    assert finished.code == code, finished.err
    assert paceline.left() == []
    lines = [json.loads(line) for line in finished.out.splitlines() if line.startswith("{")]
    return finished, lines


def lives(lines, attempt):
    return sorted((line["rank"], line["begun"], line["total"]) for line in lines if line.get("attempt") == attempt)


def events(paceline, name):
    return [event for event in paceline.evidence().events if event["event"] == name]


@pytest.mark.parametrize("server", ["off", "auto"])
def test_a_killed_rank_costs_no_step_and_no_restart(paceline, server):
    options = ("--nproc-per-node", "2", "--fork-server", server)
    finished, lines = ran(paceline, *options, dies=[(0, 1, 6, KILL)], waits=server == "auto")
    assert lives(lines, 0) == [(0, 0, 0), (1, 0, 0)]
    (first, _, total), (second, begun, _) = lives(lines, 1)
    # The rank that was killed had kept step 6. The other one may not have.
    assert (first, second) == (0, 1) and begun in (5, 6) and total == sum(range(begun + 1))
    assert sorted(line["done"] for line in lines if "done" in line) == [36, 36]
    assert {line["forked"] for line in lines if line.get("attempt") == 1} == {server == "auto"}
    assert (
        len({line["seed"] for line in lines if "seed" in line})
        == len({line["hash"] for line in lines if "hash" in line})
        == 1
    )
    assert all(line["room"] > 0 for line in lines if "room" in line)
    assert (
        f"resumed at step {begun}: rank 1 was killed (SIGKILL); " in finished.err
        and "1 restart, 1 resumed" in finished.err
    )
    assert "F14" not in finished.err
    (told,) = events(paceline, "resumed")
    assert (told["attempt"], told["step"], told["rank"], told["steps_again"]) == (1, begun, 1, 6 - begun)
    # Both ends are recorded as those of the first attempt, with what is known of them.
    ended = [(event["attempt"], event["rank"], event["code"]) for event in events(paceline, "rank_exited")]
    assert sorted(ended) == [(0, 0, -9), (0, 1, -9), (1, 0, 0), (1, 1, 0)]
    found = totals(paceline.evidence().events)
    assert (found.count, found.lost_steps, len(found.resumed)) == (1, 0, 1)
    (run,) = json.loads(paceline.run("ps", "--json").out)["runs"]
    assert (run["restart_count"], run["resume_count"], run["lost_step_count"]) == (1, 1, 0)


def test_ranks_of_local_hosts_go_on_together(paceline):
    finished, lines = ran(
        paceline, "--local-hosts", "2", "--nproc-per-node", "2", dies=[(0, 2, 4, KILL), (1, 0, 7, KILL)]
    )
    for attempt in (1, 2):
        assert [rank for rank, _, _ in lives(lines, attempt)] == [0, 1, 2, 3]
        ((begun, total),) = {life[1:] for life in lives(lines, attempt)}
        assert total == sum(range(begun + 1)) and begun in ((3, 4), (6, 7))[attempt - 1]
    assert [line["done"] for line in lines if "done" in line] == [36] * 4
    assert len({line["seed"] for line in lines if "seed" in line}) == 1
    assert "rank 2 was killed (SIGKILL)" in finished.err and "2 restarts, 2 resumed" in finished.err


def test_a_step_that_fails_three_times_ends_the_job_with_the_ranks_own_code(paceline):
    dies = [(attempt, 1, 3, int(signal.SIGSEGV)) for attempt in range(9)]
    text = RANK.replace("    if not plan.get(", "    if number < 3 and not plan.get(")
    finished, lines = ran(paceline, "--nproc-per-node", "2", "--max-restarts", "5", code=139, dies=dies, text=text)
    assert max(line["attempt"] for line in lines if "attempt" in line) == 2
    assert "error[F07]: step 2 failed 3 times: it is the script" in finished.err
    assert "ended by SIGSEGV" in finished.err


def test_a_rank_that_did_not_find_what_was_kept_ends_the_job_with_205(paceline):
    dies = [(0, 1, 3, KILL), (1, 0, 5, "mismatch")]
    finished, lines = ran(paceline, "--nproc-per-node", "2", "--max-restarts", "5", code=205, dies=dies)
    assert max(line["attempt"] for line in lines if "attempt" in line) == 1
    assert (
        "error[F03]: the state or the batch after resuming" in finished.err and "is reported as 1" not in finished.err
    )


def test_a_205_of_the_script_itself_is_reported_as_1(paceline):
    finished, _ = ran(paceline, "--nproc-per-node", "2", code=1, dies=[(0, 1, 3, "script")])
    assert "the script's own code 205 is reported as 1" in finished.err


def test_where_a_rank_refuses_to_keep_its_state_a_kill_is_what_it_was(paceline):
    finished, _ = ran(paceline, "--nproc-per-node", "2", code=137, dies=[(0, 1, 3, KILL)], refuses=True)
    assert paceline.evidence().run.status is Status.FAILED and "SIGTERM" in str(events(paceline, "stopping"))
    assert "resumed" not in finished.err


def test_a_death_before_the_first_kept_step_begins_again_and_says_that_nothing_is_lost(paceline):
    text = RANK.replace("    if not plan.get(", "    if attempt and not plan.get(")
    finished, lines = ran(paceline, "--nproc-per-node", "2", dies=[(0, 1, 1, KILL)], text=text)
    assert "nothing had been kept yet, so nothing is lost" in finished.err
    assert [line["done"] for line in lines if "done" in line] == [36, 36]


def test_ranks_that_make_steps_and_keep_nothing_are_stopped_as_without_it(paceline):
    text = RANK.replace("    cells[StateCell.STEP_COUNT] = number\n", "").replace(
        "    if not plan.get(", "    if False and plan.get("
    )
    finished, _ = ran(paceline, "--nproc-per-node", "2", code=137, dies=[(0, 1, 4, KILL)], text=text)
    assert "SIGTERM" in str(events(paceline, "stopping")) and "nothing is lost" not in finished.err


LOOKS = """
import json, os, sys
shown = {name: value for name, value in os.environ.items() if name in ("PACELINE_STATE_FD", "PYTHONHASHSEED")}
print(json.dumps({"shown": shown, "memory": ["paceline-state" in os.readlink(f"/proc/self/fd/{fd}") for fd in "3456789" if
    os.path.exists(f"/proc/self/fd/{fd}")]}), flush=True)
"""


@pytest.mark.parametrize("options", [(), ("--resume", "off"), ("--max-restarts", "1", "--fork-server", "auto")])
def test_without_resume_there_is_no_trace_of_it(paceline, options):
    finished = paceline.run("run", *options, paceline.script("train.py", LOOKS), PACELINE_STATE_FD="7")
    assert finished.code == 0, finished.err
    found = json.loads(finished.out)
    assert found["shown"] == {} and True not in found["memory"]


def test_a_hash_seed_of_the_user_stays(paceline):
    finished = paceline.run("run", "--resume", "auto", paceline.script("train.py", LOOKS), PYTHONHASHSEED="random")
    assert json.loads(finished.out)["shown"]["PYTHONHASHSEED"] == "random"


def test_a_program_that_is_not_python_runs_without_it_and_one_line_says_so(paceline):
    script = paceline.script("train.sh", "echo ${PACELINE_STATE_FD:-none}\n")
    finished = paceline.run("run", "--resume", "auto", script)
    assert finished.code == 0 and finished.out == "none\n"
    assert finished.err.count("--resume is off: the program is not a script or a module of this Python") == 1
