"""Plain logs give candidates: order decides before wording, a victim's line is no cause, and text that does not decide says what would."""

import json
import time

import pytest

from paceline.diagnosis.case import Level
from paceline.diagnosis.logs.judge_logs import judge_logs
from paceline.diagnosis.logs.lines import Log, moment_in, tracebacks, without_prefix
from paceline.diagnosis.logs.patterns import SIGNS, TITLES
from paceline.findings import Confidence

# What users posted, with the cause that the thread found; and what torchrun printed of faults that were injected.
POSTED = {
    "ALLREDUCE on rank 0 vs BARRIER on rank 1": "M06",
    "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 40": "R08",
    "Expected to have finished reduction in the prior iteration before starting a new one.": "M08",
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600659 milliseconds": "N04",
    "NCCL WARN Call to posix_fallocate failed: No space left on device": "C08",
    "include/shm.h:27 NCCL WARN Call to shm_open failed : Permission denied": "C08",
    "Error while creating shared memory segment /dev/shm/nccl-pZafXL (size 7340384)": "C08",
    "Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:152] timed out connecting: SO_ERROR: Connection refused, "
    "remote=[127.0.0.1] (rank=8, size=16, local=[127.0.0.1])": "R03",
    "NET/IB : collective mismatch error": "M10",
    "RuntimeError: Address already in use": "R04",
    "[E socket.cpp:472] [c10d] The server socket has failed to listen on any local network address.": "R04",
    "RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.": "C12",
    "slurmstepd: error: Detected 1 oom-kill event(s). Some of your processes may have been killed by the cgroup": "C02",
    "RuntimeError: received 0 items of ancdata": "C10",
    "OSError: [Errno 24] Too many open files": "C10",
    "#1 __GI___cxa_atexit": "N03",
    "params[0] in this process with sizes [96, 32] appears not to match sizes of the same param in process 0.": "M09",
    "gloo::EnforceNotMet [pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4. collective mismatch in your code?": "M02",
    "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.": "R01",
    "The IPv4 network addresses of (no-such-host-xyz, 29500) cannot be retrieved (gai error: -2)": "R03",
    "RuntimeError: [enforce fail at device.cc:214] Unable to find address for: ^lo": "R05",
    "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but "
    "not set": "R07",
    "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-11-20T10:00:00 DUE TO PREEMPTION ***": "C04",
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 15": "C04",
    "Rank 1 exhausted all inputs.": "M05",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": "C07",
    "OSError: [Errno 28] No space left on device: '/ckpt/model.pt'": "C09",
    "RuntimeError: can't start new thread": "C11",
    "[ 123.4] Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB": "C02",
    "[ 123.4] Out of memory: Killed process 4242 (python) total-vm:1kB": "C03",
    "*** SIGSEGV *** in c10d::Logger::set_env_variables()": "C05",
}
UNDECIDED = (
    "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete",
    "RuntimeError: [pair.cc:537] Read error [127.0.0.1]:19376: Connection reset by peer",
    "Connection closed by peer [10.0.0.2]:1. This is typically caused by a remote worker crashing.",
    "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
    "The client socket has timed out after 900000ms while trying to connect to (10.0.0.1, 29500).",
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91823, OpType=ALLREDUCE, NumelIn=4194304, "
    "NumelOut=4194304, Timeout(ms)=600000) ran for 600659 milliseconds",
    "  exitcode  : -9 (pid: 201)",
)
RAISED = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/u/train.py", line 40, in <module>
[rank1]:     main()
[rank0]: Traceback (most recent call last):
[rank1]:   File "/home/u/train.py", line 31, in main
[rank1]:     raise ValueError("bad batch 17")
[rank0]:   File "/home/u/train.py", line 44, in main
[rank0]:     loss.backward()
[rank1]: ValueError: bad batch 17
[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection closed by peer [127.0.0.1]:19376
"""
BLAMED = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_10:00:07
  host      : node05
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 200)
  error_file: <N/A>
"""


def judged(*texts):
    return judge_logs([Log(f"log{place}", text) for place, text in enumerate(texts)])


@pytest.mark.parametrize(("text", "code"), POSTED.items(), ids=list(POSTED.values()))
def test_a_line_whose_cause_is_known_leads_with_that_cause(text, code):
    findings = judged(f"some progress\n{text}\n").findings
    assert findings[0].code == code
    assert findings[0].confidence is not Confidence.UNCLEAR or code == "N03"
    assert findings[0].next


@pytest.mark.parametrize("text", UNDECIDED)
def test_text_that_does_not_decide_is_unclear_and_says_what_would(text):
    said = judged(text)
    assert said.findings
    assert all(finding.confidence is Confidence.UNCLEAR for finding in said.findings)
    assert said.findings[0].next
    assert any("text does not decide" in entry for entry in said.not_judged)


def test_a_log_with_nothing_in_it_gives_no_finding():
    said = judged("epoch 1 loss 0.5\nepoch 2 loss 0.4\n")
    assert said.findings == ()
    assert "no line in these files" in said.not_judged[-1]


def test_the_first_traceback_wins_over_torchruns_root_cause():
    (finding,) = judged(RAISED + BLAMED).findings
    assert (finding.code, finding.ranks, finding.confidence) == ("C01", (1,), Confidence.HIGH)
    assert finding.saw[0] == "ValueError: bad batch 17"
    assert finding.saw[1] == "/home/u/train.py:31 in main"
    assert any("rank 0, torchrun's root cause" in text for text in finding.ruled_out)


def test_an_exception_that_a_sign_explains_is_not_reported_twice():
    text = RAISED.replace("ValueError: bad batch 17", "torch.OutOfMemoryError: CUDA out of memory.")
    assert [finding.code for finding in judged(text).findings] == ["C07"]


def test_of_two_files_the_stamps_tell_which_traceback_came_first():
    late = (
        'E1120 10:00:09.000 1 x.py:1] x\nTraceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 1\n'
    )
    early = late.replace("10:00:09", "10:00:02").replace("KeyError: 1", "ValueError: first")
    assert judged(late, early).findings[0].saw[0] == "ValueError: first"


def test_the_same_exception_on_every_rank_names_all():
    text = "".join(
        f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "a.py", line 1, in f\n'
        f"[rank{rank}]: NameError: name 'x' is not defined\n"
        for rank in range(3)
    )
    assert judged(text).findings[0].ranks == (0, 1, 2)


def test_a_rank_that_the_launcher_killed_itself_is_no_victim_of_a_kill():
    text = (
        "Unable to shutdown process 201 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL\n"
        "  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 201)\n"
        "RuntimeError: Timed out waiting 20000ms for recv operation to complete\n"
    )
    (finding,) = judged(text).findings
    assert (finding.code, finding.ranks) == ("N02", (1,))
    assert "kill -CONT" in finding.next[0]


def test_a_pid_of_torchruns_is_traced_to_its_rank():
    killed = "failed (exitcode: -9) local_rank: 1 (pid: 200) of binary: python\n" + BLAMED.replace(
        "exitcode  : 1", "exitcode  : -9"
    )
    assert judged(killed).findings[0].ranks == (0,)


def test_agents_that_contradict_each_other_are_named():
    said = judged(BLAMED, BLAMED.replace("rank      : 0", "rank      : 3"))
    assert any("different ranks (0, 3)" in text for text in said.not_judged)


def test_ranks_that_wait_in_different_calls_diverge():
    line = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType={}, NumelIn=8, Timeout(ms)=1)\n"
    finding = judged(line.format(0, "ALLREDUCE") + line.format(1, "BROADCAST")).findings[0]
    assert (finding.code, finding.ranks, finding.level) == ("M01", (0, 1), Level.DIVERGENCE)


def test_a_rank_that_enqueued_less_is_behind():
    count = "[PG ID 0 PG GUID 0(default_pg) Rank {}] last enqueued NCCL work: {}, last completed NCCL work: 70\n"
    line = (
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=71, OpType=ALLREDUCE, NumelIn=9, T=1)\n"
    )
    finding = judged(line + count.format(0, 72) + count.format(1, 70) + count.format(2, 72)).findings[0]
    assert (finding.code, finding.ranks, finding.confidence) == ("N01", (1,), Confidence.UNCLEAR)


def test_what_follows_a_sure_cause_is_at_most_likely():
    said = judged(
        "Detected 1 oom-kill event(s)\nslurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 10:00 DUE TO NODE FAILURE"
    )
    assert [finding.confidence for finding in said.findings] == [Confidence.HIGH, Confidence.LIKELY]


def test_a_rules_title_wins_over_the_tables():
    assert judge_logs([Log("a", "Duplicate GPU detected")], titles={"R08": "mine"}).findings[0].title == "mine"


def test_what_was_not_read_is_said():
    assert judge_logs([Log("a", "x", note="80 MB not read")]).not_judged[0] == "a: 80 MB not read"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[rank3]: boom", ("boom", 3, "")),
        ("[default1]:boom", ("boom", 1, "")),
        ("[1,mpirank:3,algo-2]<stderr>:boom", ("boom", 3, "algo-2")),
        ("[1,2]<stdout>: boom", ("boom", 2, "")),
        ("boom", ("boom", None, "")),
    ],
)
def test_marks_of_launchers_are_read_and_taken_off(line, expected):
    assert without_prefix(line) == expected


def test_the_files_name_says_whose_lines_they_are():
    assert Log("logs/none/attempt_0/3/stderr.log", "x").rank == 3
    assert Log("out_rank_12.txt", "x").rank == 12
    assert Log("slurm-4711.out", "x").rank is None


def test_stamps_of_glog_and_iso():
    assert moment_in("E1120 14:22:01.123456 9 a.cpp:1] x") == (11, 20, 14, 22, 1, 123)
    assert moment_in("2026-11-20 14:22:01,123 INFO x") == (11, 20, 14, 22, 1, 123)
    assert moment_in("loss 0.5") is None


def test_a_chain_is_one_traceback_with_its_beginning():
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 1\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "a.py", line 9, in g\n    go()\nValueError: two\n'
    )
    (found,) = tracebacks(Log("a", text))
    assert (found.said(), found.users_frame()) == ("ValueError: two", "a.py:9 in g")


def test_an_error_file_of_torch_is_read():
    stack = 'Traceback (most recent call last):\n  File "t.py", line 3, in main\nValueError: x\n'
    text = json.dumps({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": stack, "timestamp": "1"}}})
    assert judged(text).findings[0].code == "C01"


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):",
        "Traceback (most recent call last):\n  File",
        "\n",
        "",
        '{"py_callstack": ' + "[" * 100_000,
    ],
)
def test_a_log_that_ends_in_the_middle_is_read_to_its_end(text):
    judged(text)


def test_every_sign_names_a_titled_cause_what_decides_and_a_source():
    for sign in SIGNS:
        assert set(sign.codes) <= {*TITLES, "unclear"}, sign.pattern
        assert sign.means and sign.decides and sign.source


def test_a_log_of_many_lines_is_read_quickly():
    text = "".join(f"step {step} loss 0.123 lr 3e-4 grad 1.0\n" for step in range(100_000)) + RAISED
    began = time.process_time()
    assert judged(text).findings[0].code == "C01"
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "text",
    [
        "exit code 1\n" + "\n" * 100_000 + "Killed by hand\n",
        "ValueError: a sample that is left out\n" * 50_000,
        "Missing ranks:\n1: [grad.a]\n" + "step 3 loss 0.5\n" * 200_000,
    ],
    ids=["blank_lines", "exceptions_that_were_caught", "a_stall_without_marks"],
)
def test_many_lines_of_one_kind_are_read_quickly(text):
    began = time.process_time()
    judged(text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 15000 ms", (1,)),
        ("[Rank 0]: Rank 3 failed to pass monitoredBarrier in 15000 ms", (3,)),
        ("[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 15000 ms", ()),
        ("[rank0]: DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.", ()),
        ("[rank1]: DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cpu//0/0", ()),
    ],
)
def test_a_rank_that_waited_is_not_named_for_the_one_that_did_not_come(line, ranks):
    assert judged(line).findings[0].ranks == ranks


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("Warning  Evicted  kubelet  The node had condition: [DiskPressure].", ["C09"]),
        ("Failed to admit pod train-0 - node has conditions: [MemoryPressure, DiskPressure]", ["C09"]),
        ("Pod ephemeral local storage usage exceeds the total limit of containers 20Gi.", ["C09"]),
        ("  DiskPressure     False   Mon, 01 Jan   KubeletHasNoDiskPressure   kubelet has no disk pressure", []),
    ],
)
def test_an_eviction_and_not_the_state_of_a_healthy_node_is_a_full_disk(text, codes):
    assert [finding.code for finding in judged(text + "\n").findings] == codes


@pytest.mark.parametrize(
    ("program", "sure"), [("train.py", True), ("__main__.py", True), ("torchrun", False), ("pip", False)]
)
def test_of_a_refused_command_line_only_the_scripts_own_is_sure(program, sure):
    (finding,) = judged(f"{program}: error: unrecognized arguments: --nproc_per_nod=2\n").findings
    assert (finding.code, finding.confidence is Confidence.HIGH) == ("C01", sure)
    assert ("the script" in finding.title) is sure
