"""Whose failure a log tells of: no line of somebody else's is to be repaired, and no process ends without a word."""

import pytest

from paceline.diagnosis.logs.judge_logs import judge_logs
from paceline.diagnosis.logs.lines import Log
from paceline.findings import Confidence

OWN = '  File "/home/me/train.py", line 61, in step\n    loss.backward()\n'
LIBRARY = (
    '  File "/opt/venv/lib/python3.11/site-packages/torch/autograd/graph.py", line 829, in run\n    return run()\n'
)


def judged(text, name="train.log"):
    return judge_logs([Log(name, text)]).findings


def raised(outcome, *frames):
    return "step 3 loss 0.5\nTraceback (most recent call last):\n" + "".join(frames) + outcome + "\n"


@pytest.mark.parametrize(
    "outcome",
    [
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with exit code 1",
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
        "ray.exceptions.RayTaskError(ValueError): ray::train() (pid=4, ip=10.0.0.1)",
        "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.",
        "ray.train.base_trainer.TrainingFailedError: The Ray Train run failed.",
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly.",
        "distributed.scheduler.KilledWorker: Attempted to run task on 4 different workers",
        "KeyboardInterrupt",
        "RuntimeError: [/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4",
        "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: Socket closed",
        "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1.",
    ],
)
def test_what_a_driver_a_peer_or_an_interruption_raises_is_no_sure_failure_of_the_script(outcome):
    for finding in judged(raised(outcome, OWN, LIBRARY)):
        assert (finding.code, finding.confidence) != ("C01", Confidence.HIGH)
        assert not any(text.startswith("repair") for text in finding.next)


@pytest.mark.parametrize(
    "outcome",
    [
        "RuntimeError: No CUDA GPUs are available",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions? Error 803: unsupported",
        "OSError: [Errno 5] Input/output error: '/data/shard-3.tar'",
        "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/fsx'",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "ImportError: /home/me/.triton/cache/x.so: cannot stat shared object: Stale file handle",
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.",
    ],
)
def test_what_no_line_of_the_script_explains_is_never_to_be_repaired_in_it(outcome):
    (finding,) = judged(raised(outcome, OWN, LIBRARY))
    assert finding.code == "C01" and finding.confidence is not Confidence.HIGH
    assert outcome in finding.saw and "/home/me/train.py:61 in step" in finding.saw
    assert not any(text.startswith(("repair", "edit")) for text in finding.next)


QUOTA = (
    "botocore.errorfactory.ResourceLimitExceeded: An error occurred (ResourceLimitExceeded) when calling the CreateTrainingJob operation: "
    "The account-level service limit 'ml.p4d.24xlarge for training job usage' is 0 Instances, with current utilization of 0 Instances "
    "and a request delta of 2 Instances."
)


def test_a_quota_that_is_used_up_is_asked_for_and_no_line_is_repaired():
    (finding,) = judged(raised(QUOTA, OWN, LIBRARY))
    assert (
        finding.confidence is not Confidence.HIGH and "'ml.p4d.24xlarge for training job usage' is 0" in finding.saw[0]
    )
    (way,) = finding.next
    assert way.startswith("ask for a quota: ") and "aws service-quotas request-service-quota-increase" in way
    (finding,) = judged(QUOTA)
    assert finding.next[0].startswith("ask for a quota: ")


def test_of_memory_of_a_gpu_the_line_is_shown_and_what_loads_a_file_is_told():
    outcome = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB"
    )
    (finding,) = judged(raised(outcome, OWN, LIBRARY))
    assert finding.code == "C07" and "/home/me/train.py:61 in step" in finding.saw
    assert not any("map_location" in text for text in finding.next)
    loads = LIBRARY.replace("autograd/graph.py", "serialization.py")
    (finding,) = judged(raised(outcome, OWN, loads))
    assert "map_location" in finding.next[0]


def test_a_crash_that_follows_a_refused_port_is_no_second_cause():
    refused = "E0803 09:14:02 tcp_server.c:284] bind addr=[::]:2401: Address already in use\n"
    crashed = "srun: error: cn25: task 0: Segmentation fault\n"
    assert [f.code for f in judged(refused + crashed) if f.confidence is not Confidence.UNCLEAR] == ["R04"]
    assert judged(crashed + refused)[0].code == "C05"


LIGHTNING = "Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {member}/{count}\n"


@pytest.mark.parametrize(
    ("came", "count", "absent"), [((0,), 8, tuple(range(1, 8))), ((0, 1), 4, (2, 3)), ((0, 1), 2, ()), ((2, 3), 4, ())]
)
def test_who_has_not_come_by_lightnings_own_count(came, count, absent):
    text = "".join(LIGHTNING.format(rank=rank, member=rank + 1, count=count) for rank in came)
    assert [f.ranks for f in judged(text)] == ([absent] if absent else [])
    assert judged(text + "All distributed processes registered. Starting with 8 processes\n") == ()


@pytest.mark.parametrize(
    "file",
    [
        "h5py/h5f.pyx",
        "pandas/_libs/hashtable.pyx",
        "/opt/conda/bin/accelerate",
        "/usr/local/bin/deepspeed",
        "/opt/venv/bin/torchrun",
        "/opt/venv/lib/python3.11/site-packages/lightning/pytorch/trainer/trainer.py",
        "/usr/lib/python3/dist-packages/ray/train/base_trainer.py",
        "/usr/lib/python3.12/runpy.py",
        "<frozen runpy>",
        "<string>",
    ],
)
def test_a_line_that_is_not_the_users_is_never_to_be_repaired(file):
    (finding,) = judged(raised("ValueError: no such option", f'  File "{file}", line 8, in main\n    main()\n'))
    assert finding.confidence is not Confidence.HIGH and not any(file in text for text in finding.next)
    assert "ValueError: no such option" in finding.saw


@pytest.mark.parametrize(
    "file", ["/home/me/train.py", "train.py", "/workspace/bin/train.py", "/opt/ml/code/src/model.py"]
)
def test_the_users_innermost_line_is(file):
    (finding,) = judged(raised("ValueError: no", f'  File "{file}", line 8, in main\n    main()\n', LIBRARY))
    assert finding.confidence is Confidence.HIGH and finding.next[-1] == f"repair {file}:8 in main"


@pytest.mark.parametrize(
    ("closing", "ranks"),
    [
        ("E0401 09:00:01.1 71 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 3) local_rank: 0 (pid: 90) of p", ()),
        ("[2025-04-02 10:31:44] [ERROR] [launch.py:325:sigkill_handler] ['p', 't.py', '--local_rank=1'] exits with return code = 3", ()),
        ("srun: error: node7: task 5: Exited with exit code 3", (5,)),
        ("srun: error: node7: tasks 4-7: Exited with exit code 3", (4,)),
        ("mpirun detected that one or more processes exited:\n  Process name: [[4321,1],2]\n  Exit code:    3", (2,)),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 3", (1,)),
        ("trainer-1 exited with code 3", ()),
        ("      Exit Code:    3", ()),
        ("subprocess.CalledProcessError: Command '['python', 't.py']' returned non-zero exit status 3.", ()),
    ],
)  # fmt: skip
def test_a_process_that_ended_with_an_error_is_never_without_a_finding(closing, ranks):
    (finding,) = judged(f"loading data\nthe licence server says no\n{closing}\n")
    assert "code 3" in finding.title and finding.ranks == ranks and finding.confidence is Confidence.UNCLEAR
    assert any("the licence server says no" in text for text in finding.saw)


@pytest.mark.parametrize(
    "closing",
    [
        "trainer-1 exited with code 0",
        "srun: error: n: task 5: Exited with exit code 0",
        "epoch 3 done",
        "INFO rendezvous: keep-alive 5 s, heartbeat timeout 60 s",
    ],
)
def test_a_good_end_is_no_finding(closing):
    assert judged(f"loading data\n{closing}\n") == ()


@pytest.mark.parametrize(
    "guess",
    [
        "the remote task may have been preempted or crashed",
        "This indicates that the task has failed, got preempted, or was restarted",
        "There are some potential root causes: (1) Segmentation fault (2) out of memory: Killed process",
        "Possible reasons: No space left on device, a firewall",
        "It could be that the peer was killed, e.g. Signal 9 (SIGKILL)",
    ],
)
def test_a_word_in_a_list_of_guesses_is_no_evidence(guess):
    assert not [finding for finding in judged(f"step 3\n{guess}\n") if finding.confidence is not Confidence.UNCLEAR]


def test_one_failure_with_another_text_on_each_rank_is_one():
    lines = [
        f"[rank{rank}]: {line}"
        for rank in (0, 1, 2)
        for line in raised(f"FileNotFoundError: state_{rank}.pt", OWN).splitlines()[1:]
    ]
    (finding,) = judged("\n".join(lines) + "\n")
    assert finding.ranks == (0, 1, 2) and finding.ruled_out == ()


@pytest.mark.parametrize("mark", ["", "[rank1]: "])
def test_a_message_is_kept_whole(mark):
    lines = [
        *raised("RuntimeError: Error(s) in loading state_dict for Net:", OWN).splitlines()[1:],
        "\tMissing key(s): a",
        "\tUnexpected: b",
    ]
    (finding,) = judged("\n".join(mark + line for line in lines) + "\n")
    assert finding.saw[1:3] == ("Missing key(s): a", "Unexpected: b")


@pytest.mark.parametrize(
    "line", ["wandb: Network error, Connection refused, entering retry loop.", "Broken pipe, leaving"]
)
@pytest.mark.parametrize("mark", ["[1,0]<stderr>:", "[default0]:"])
def test_what_a_rank_writes_behind_its_exception_is_no_part_of_the_message(line, mark):
    lines = [*raised("ValueError: bad sample", OWN).splitlines()[1:], line]
    (finding,) = judged("\n".join(mark + line for line in lines) + "\n")
    assert finding.confidence is Confidence.HIGH and finding.saw[0] == "ValueError: bad sample"
    assert line not in finding.saw


def test_lines_that_torch_marks_are_the_message():
    lines = [*raised("torch.distributed.DistBackendError: NCCL error in: a.cpp:3, unhandled cuda error", OWN).splitlines()[1:],
             "ncclUnhandledCudaError: Call to CUDA function failed.", "Last error:", "Cuda failure 'out of memory'"]  # fmt: skip
    (finding,) = judged("\n".join("[rank0]: " + line for line in lines) + "\n")
    assert finding.code == "C07"


def test_a_syntax_error_is_repaired_where_it_is():
    text = raised("SyntaxError: invalid syntax", OWN, '  File "/home/me/net.py", line 3\n    x = = 3\n        ^\n')
    assert judged(text)[0].next == ("repair /home/me/net.py:3",)


def test_a_message_ends_where_another_line_begins():
    text = raised("RuntimeError: no", OWN) + "[rank0]:[W1127 10:00:00.1 CUDA.cpp:3] Warning: destroy\nepoch 4 starts\n"
    (finding,) = judged(text)
    assert finding.saw[0] == "RuntimeError: no" and "epoch" not in " ".join(finding.saw)


def test_an_interruption_without_a_frame_shows_no_empty_line():
    (finding,) = judged(raised("KeyboardInterrupt"))
    assert finding.code == "C04" and finding.saw == ("train.log:2: KeyboardInterrupt",)


def test_the_traceback_of_a_peer_right_behind_one_without_a_mark_is_not_its_end():
    echo = raised("RuntimeError: Connection closed by peer [10.0.0.1]:4", OWN).partition("\n")[2]
    (finding,) = judged(raised("ValueError: bad sample", OWN) + echo)
    assert finding.code == "C01" and finding.saw[0] == "ValueError: bad sample"


@pytest.mark.parametrize(
    "between",
    [
        "\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n",
        "Original Traceback (most recent call last):\n",
    ],
)
def test_a_chained_exception_and_that_of_a_loader_worker_are_one_with_the_first(between):
    (finding,) = judged(raised("RuntimeError: Caught KeyError", LIBRARY) + between + OWN + "KeyError: 3\n")
    assert finding.saw[:2] == ("KeyError: 3", "/home/me/train.py:61 in step") and finding.ruled_out == ()


@pytest.mark.parametrize(
    "head",
    [
        "Exception ignored in: <function Loader.__del__ at 0x7f1>",
        "Exception ignored while calling deallocator <function Loader.__del__ at 0x7f1>:",
        "--- Logging error ---",
    ],
)
@pytest.mark.parametrize("mark", ["", "[rank1]: "])
def test_an_exception_that_ends_nothing_is_no_cause(head, mark):
    text = raised("TypeError: not all arguments converted", OWN)
    lines = [head, *text.splitlines()[1:], "Call stack:", *OWN.splitlines()]
    assert judged("\n".join(mark + line for line in lines) + "\n") == ()
    (finding,) = judged("\n".join(mark + line for line in lines) + "\n" + raised("KeyError: 3", OWN))
    assert finding.saw[0] == "KeyError: 3"
