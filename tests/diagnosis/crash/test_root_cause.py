"""Whose words are an echo of somebody else's fall, and whose are a cause."""

import ast
from pathlib import Path

import pytest

from paceline.diagnosis.crash.root_cause import is_symptom_text, lost_a_loader_worker, telling_line
from paceline.facts import RankError, RankExit

COMM = Path(__file__).resolve().parents[3] / "src" / "paceline" / "parts" / "comm"

# As comm says it; "rank 1 is gone" in one process's words is another's end.
ECHOES = (
    "gradients by direct, bucket 0: rank 1, on this host, ended in the middle of an exchange; its own output, or who killed it, says why",
    "rank 1, on this host, gave up an exchange: KeyError: 'x'",
    "rank 0 on h: allreduce number 18 of group 0 (7240 x float32, 2 ranks) failed: rank 1 on h is gone in the middle of an exchange",
    "rank 0 on a: allreduce number 18 of group 0 (7240 x float32, 4 ranks on 2 hosts) failed: rank 3 on b says: KeyError: 'x'",
    "rank 1, on this host, did not come to an exchange within 60 s; its process runs: look at what it does instead",
    "rank 0 on a: broadcast failed: a connection ended, and rank 3 did not answer since; its own output, or its host, says why",
    "rank 0: a rank of [0, 1] did not answer: Connection reset",
    "rank 0: nothing more from rank 1: Broken pipe; look at rank 1's output first",
    "gradients by direct, bucket [0]: rank 0: nothing more from rank 1: it is gone",
    "the store that the ranks share does not answer any more; the process that holds it has probably ended (x)",
    "allreduce: this group has failed before and cannot be used any more; then: rank 1 is gone",
    "no further exchange: rank 0: nothing more from rank 1: gone",
    "gradients/0 was closed before this exchange: another lane failed, or the group was destroyed",
    "[/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1234",
    # tensorflow 2.21, jax 0.10
    "Graph execution error:\n\nCollective ops is aborted by: Socket closed\nAdditional GRPC error information from remote target",
    "Error reported from /job:worker/task:1: /job:worker/replica:0/task:1 unhealthy (stopped sending heartbeats). The tasks have crashed",
    "Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:547] Connection reset by peer",
)
CAUSES = (
    "KeyError: 'rank'",
    "gradients by direct, bucket [0]: AttributeError: 'NoneType' object has no attribute 'view'",
    "backend paceline moves tensors on cpu and cuda; this one is on meta",
    "[enforce fail at /gloo/transport/tcp/pair.cc:447] op.preamble.length <= op.nbytes. 32 vs 16",
)


@pytest.mark.parametrize("text", ECHOES)
def test_who_only_lost_another_rank_is_not_to_blame(text):
    assert is_symptom_text(text)


@pytest.mark.parametrize("text", CAUSES)
def test_who_fell_by_itself_may_be(text):
    assert not is_symptom_text(text)


# As torch 2.4 to 2.13 say it: torch/utils/data/dataloader.py, torch/csrc/DataLoader.cpp.
@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("DataLoader worker (pid(s) 12, 13) exited unexpectedly", True),
        ("DataLoader worker (pid 12) is killed by signal: Killed. ", True),
        (
            "DataLoader worker (pid 12) exited unexpectedly with exit code 1. Details are lost due to multiprocessing.",
            True,
        ),
        ("DataLoader timed out after 5 seconds", False),
        ("Caught ValueError in DataLoader worker process 0.", False),
        ("epoch 3: DataLoader worker (pid 12) is killed by signal: Killed. ", False),
    ],
)
def test_a_rank_that_lost_a_loader_worker_is_known_by_what_torch_raises(text, lost):
    error = RankError(type="RuntimeError", message=text, time_ns=1)
    exit = RankExit(host="h", rank=0, attempt=0, code=1, time_ns=2, error=error)
    assert lost_a_loader_worker(exit) is lost


def test_every_text_of_comm_about_a_lost_rank_is_known_as_an_echo():
    texts = {
        text
        for path in COMM.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("PeerLost", "PeerLate")
        for argument in node.args
        if (text := words(argument))
    }
    texts |= {
        text
        for path in COMM.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if "says why" in (text := words(node))
    }
    assert len(texts) >= 3
    assert [text for text in texts if not is_symptom_text(text)] == []


def words(node) -> str:
    """A text as it may read: a 7 in each gap."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "7" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


TENSORFLOWS = """Graph execution error:

Detected at node CollectiveReduceV2 defined at (most recent call last):
  File "/home/me/train.py", line 19, in <module>

  File "/home/me/train.py", line 16, in step

Collective ops is aborted by: Socket closed
Additional GRPC error information from remote target /job:worker/replica:0/task:1 while calling /tensorflow.WorkerService/RecvBuf:
\t [[{{node CollectiveReduceV2}}]] [Op:__inference_step_46]"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        (" mine \n yours", "mine"),
        (TENSORFLOWS, "Collective ops is aborted by: Socket closed"),
        ("Graph execution error:", "Graph execution error:"),
        (
            "Attempt to convert a value (PerReplica:{\n  0: 1\n}) with an unsupported type (<class 'PerReplica'>) to a Tensor.",
            "Attempt to convert a value (PerReplica:{ ... }) with an unsupported type (<class 'PerReplica'>) to a Tensor.",
        ),
        ("Expected one of (", "Expected one of ("),
        (
            'Error(s) in loading state_dict for Net:\n\tMissing key(s): "module.0.weight".\n\tUnexpected key(s): "0.weight".\n\tmore',
            'Error(s) in loading state_dict for Net: Missing key(s): "module.0.weight". Unexpected key(s): "0.weight".',
        ),
    ],
)
def test_the_line_that_says_most_is_mostly_the_first(text, line):
    assert telling_line(text) == line
