"""C01 to C13: who fell first and why, and who only followed."""

from dataclasses import replace

import pytest

from paceline.diagnosis.snapshots import Filesystem, HostSnapshot
from paceline.diagnosis.verdict import diagnose
from paceline.findings import Confidence
from paceline.probes.sigkill_source import NOT_JUDGED
from paceline.recording.fact_json import to_plain
from paceline.rules import discover

LOST = (
    "RuntimeError",
    "[pair.cc:553] Connection closed by peer [127.0.0.1]:26783. This is typically caused by a remote worker crashing.",
)
GROUP_FULL = (
    "killed by the kernel's OOM killer: its memory control group was full at its limit of 600 MiB (peak 600 MiB)"
)
# 20 s after the start of a made-up run.
SINCE = 1_795_000_020_000_000_000
CODES = ["C01", "C02", "C03", "C04", "C05", "C06", "C07", "C08", "C09", "C10", "C11", "C12", "C13"]


@pytest.fixture
def crashed(case):
    """A case that ended with these exits, whose records and tails may say more."""

    def make(*exits, tails=(), records=(), **fields):
        made = case(still=False, lasts=False, exits=exits, tails=dict(tails), **fields)
        ranks = {rank: replace(record, **dict(records).get(rank, {})) for rank, record in made.ranks.items()}
        return replace(made, ranks=ranks)

    return make


@pytest.fixture
def codes_of(found):
    return lambda case: [code for code in CODES if found(code, case)]


def judged(case):
    causes = [cause for cause in discover("causes") if cause.code[0] in "CRM"]
    return [(finding.code, finding.ranks) for finding in diagnose(case, causes).findings]


def test_the_first_exception_is_the_cause_and_the_others_are_victims(crashed, exit_of, found):
    exits = exit_of(1, error=("KeyError", "'lable'")), exit_of(0, after=20.1, error=LOST)
    (finding,) = found("C01", crashed(*exits))
    assert finding.ranks == (1,) and finding.since_step == 12 and finding.confidence == Confidence.HIGH
    assert "KeyError: 'lable'" in finding.saw[0] and "train.py:50" in finding.saw[1]
    assert "rank 0 only lost the connection" in finding.ruled_out[-1]


@pytest.mark.parametrize(
    "error",
    [
        ("ProcessExitedException", "process 1 terminated with signal SIGKILL"),
        ("ray.exceptions.RayActorError", "The actor died unexpectedly"),
        ("BrokenProcessPool", "A process in the process pool was terminated abruptly"),
    ],
)
def test_what_a_driver_raises_is_no_sure_fault_of_the_line_that_waits(crashed, exit_of, found, error):
    (finding,) = found("C01", crashed(exit_of(0, error=error)))
    assert finding.confidence is Confidence.UNCLEAR and not any(text.startswith("edit") for text in finding.next)


def test_an_interrupted_rank_is_no_fault_of_the_line_where_it_was(crashed, exit_of, found):
    case = crashed(exit_of(0, error=("KeyboardInterrupt", "")))
    assert found("C01", case) == []
    (finding,) = found("C04", case)
    assert finding.confidence is Confidence.LIKELY and "no fault of that line" in " ".join(finding.saw)


@pytest.mark.parametrize(
    ("error", "way_out"),
    [
        (
            ("RuntimeError", "one of the variables needed ... modified by an inplace operation: [768]"),
            "broadcast_buffers",
        ),
        (("RuntimeError", "Expected to mark a variable ready only once. This error"), "static_graph"),
        (("ValueError", "Default process group has not been initialized, please make sure"), "init_process_group"),
        (("OSError", "[Errno 39] Directory not empty: 'a' -> 'b'"), "one rank"),
    ],
)
def test_an_exception_that_is_known_has_its_way_out(crashed, exit_of, found, error, way_out):
    (finding,) = found("C01", crashed(exit_of(1, error=error)))
    assert any(way_out in text for text in finding.next) and finding.next[-2].startswith("edit")


def test_a_rank_that_went_on_at_a_kept_step_counts_from_there(crashed, exit_of, found):
    restarts = [{"event": "restart", "attempt": attempt, "resume_step": step} for attempt, step in ((1, 7), (2, 30))]
    for attempt, step in ((0, 12), (1, 19), (2, 42)):
        events = (*restarts, {"event": "restart", "attempt": 3, "resume_step": None})
        (finding,) = found("C04", crashed(exit_of(1, -9, note=NOT_JUDGED), events=events, attempt=attempt))
        assert finding.since_step == step
    (finding,) = found("C04", crashed(exit_of(1, -9, note=NOT_JUDGED), events=events, attempt=3))
    assert finding.since_step == 12


def test_a_victim_that_wraps_its_lost_connection_is_still_a_victim(crashed, exit_of, found):
    exits = exit_of(1, error=("KeyError", "'x'")), exit_of(0, after=20.1, error=("TrainingFailed", "step 12 failed"))
    (finding,) = found(
        "C01", crashed(*exits, tails={0: "RuntimeError: Connection closed by peer\n...TrainingFailed: step 12 failed"})
    )
    assert finding.ranks == (1,)


def test_the_same_exception_on_every_rank_is_one_finding_and_two_different_ones_are_two(crashed, exit_of, found):
    same = [exit_of(rank, error=("FileNotFoundError", f"/data/{rank}")) for rank in (0, 1)]
    (finding,) = found("C01", crashed(*same))
    assert finding.ranks == (0, 1)
    two = exit_of(0, error=("KeyError", "'x'")), exit_of(1, error=("ValueError", "bad"))
    assert [finding.ranks for finding in found("C01", crashed(*two))] == [(0,), (1,)]


def test_what_only_lost_its_connection_or_was_stopped_by_us_is_no_cause(crashed, exit_of, codes_of):
    assert codes_of(crashed(exit_of(0, error=LOST), exit_of(1, -15, signalled_by_us=True))) == []
    assert codes_of(crashed(exit_of(0, -9, signalled_by_us=True))) == []


def test_a_run_of_which_no_end_is_recorded_is_not_judged(case, missing):
    assert missing("C01", case(still=False, lasts=False)) == "how the ranks ended"


def test_a_kill_at_the_memory_limit_is_told_from_one_from_outside(crashed, exit_of, codes_of, found):
    full = crashed(exit_of(1, -9, note=GROUP_FULL), exit_of(0, after=20.1, error=LOST))
    assert codes_of(full) == ["C02"]
    assert found("C02", full)[0].ranks == (1,) and "600 MiB" in found("C02", full)[0].saw[1]
    assert codes_of(crashed(exit_of(1, -9, note=NOT_JUDGED))) == ["C04"]
    host = crashed(exit_of(1, -9, note="killed by the kernel's OOM killer: the host ran out of memory"))
    assert codes_of(host) == ["C03"]


def test_the_memory_of_a_dying_process_is_not_what_it_held(crashed, exit_of, found):
    def sample(mib, processes):
        return {"ranks": {"1": {"resident_bytes": mib << 20, "process_count": processes}}}

    killed = crashed(exit_of(1, -9, note=GROUP_FULL), telemetry={"algo-1": (sample(590, 1), sample(0, 1))})
    assert found("C02", killed)[0].saw[2] == "it held 590 MiB in 1 process at its last sample"
    only = crashed(exit_of(1, -9, note=GROUP_FULL), telemetry={"algo-1": (sample(0, 1),)})
    assert "MiB in" not in "".join(found("C02", only)[0].saw[2:])


def test_what_to_edit_is_the_users_own_file_and_not_a_copy_of_it(crashed, exit_of, found):
    exit = exit_of(1, error=("KeyError", "'x'"))
    copy = replace(exit, error=replace(exit.error, file="/jobs/r-1/code/train.py", own_file="/home/me/train.py"))
    (finding,) = found("C01", crashed(copy))
    assert "/jobs/r-1/code/train.py:50" in finding.saw[1] and finding.next[0] == "edit /home/me/train.py:50"


def test_a_likely_kill_by_the_kernel_is_said_to_be_likely(crashed, exit_of, found):
    (finding,) = found(
        "C02", crashed(exit_of(1, -9, note="likely " + GROUP_FULL + "; the group counted 1 kill meanwhile"))
    )
    assert finding.confidence == Confidence.LIKELY


def test_a_loader_worker_killed_at_the_limit_is_c02_where_the_groups_count_moved(crashed, exit_of):
    exit = exit_of(1, error=("RuntimeError", "DataLoader worker (pid(s) 77) exited unexpectedly"))
    tail = {1: "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed."}
    telemetry = {"algo-1": tuple({"cgroup": {"oom_kill_count": count}} for count in (3, 4))}
    assert judged(crashed(exit, tails=tail, telemetry=telemetry)) == [("C02", (1,))]
    assert judged(crashed(exit, tails=tail)) == [("C12", (1,))]


def test_a_kill_of_which_no_counter_was_read_is_not_judged(crashed, exit_of, missing, found):
    assert "OOM killer" in missing("C04", crashed(exit_of(1, -9)))
    unreadable = crashed(exit_of(1, -9, note="not judged: no oom counter can be read here; the sender is unknown"))
    assert found("C04", unreadable)[0].confidence == Confidence.LIKELY


def test_every_rank_of_a_host_that_ends_at_once_points_at_the_host(crashed, exit_of, found):
    exits = [exit_of(rank, -15, after=20 + rank / 10) for rank in (2, 3)]
    (finding,) = found("C04", crashed(*exits, world_size=4))
    assert finding.ranks == (2, 3) and finding.hosts == ("algo-2",)
    assert any("every rank of algo-2" in line for line in finding.saw)


@pytest.mark.parametrize("code", [-11, -6, -7, -8, -4, 139])
def test_a_crash_in_native_code(crashed, exit_of, codes_of, code):
    assert codes_of(crashed(exit_of(1, code))) == ["C05"]


def test_faulthandlers_trace_names_the_python_line(crashed, exit_of, found):
    trace = (
        "Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n"
        '  File "/other.py", line 1 in wait\n\nCurrent thread 0x2 (most recent call first):\n'
        '  File "/lib/ctypes/__init__.py", line 519 in string_at\n  File "/home/me/train.py", line 14 in <module>\n'
    )
    (finding,) = found("C05", crashed(exit_of(1, -11), tails={1: trace}))
    assert "Python was at /lib/ctypes/__init__.py:519 in string_at" in finding.saw


def test_an_abort_that_only_reports_a_lost_connection_is_an_echo(crashed, exit_of, codes_of):
    exits = exit_of(1, error=("KeyError", "'x'")), exit_of(0, -6, after=20.1)
    tails = {
        0: "terminate called after throwing an instance of 'gloo::IoException'\n  what():  Connection closed by peer"
    }
    assert codes_of(crashed(*exits, tails=tails)) == ["C01"]


def test_leaving_with_0_in_the_middle_is_told_from_a_program_that_ran_to_its_end(crashed, exit_of, codes_of, missing):
    exits = exit_of(1, 0), exit_of(0, after=20.1, error=LOST)
    assert codes_of(crashed(*exits, records={1: {"left_by": 0}})) == ["C06"]
    assert codes_of(crashed(*exits, records={1: {"left_by": 2}})) == ["C06"]
    assert codes_of(crashed(*exits, records={1: {"left_by": 1}})) == []
    assert missing("C06", crashed(*exits)) == "how rank 1 left"


@pytest.mark.parametrize(
    ("left_at", "seen", "advice"),
    [
        ("train.py:16 in leave, the handler of SIGTERM, by sys.exit(0)", "handler of SIGTERM", "train.py:16 in leave: leave with"),
        ("train.py:45, by os._exit(0)", "train.py:45, by os._exit(0)", "train.py:45: decide on every rank"),
        ("", "it left without running its exit handlers", "look for os._exit"),
    ],
)  # fmt: skip
def test_who_left_in_a_handler_is_told_which_signal_and_line(crashed, exit_of, found, left_at, seen, advice):
    exits = exit_of(1, 0), exit_of(0, after=20.1, error=LOST)
    (finding,) = found("C06", crashed(*exits, records={1: {"left_by": 0, "left_at": left_at}}))
    assert seen in finding.saw[1] and finding.next[0].startswith(advice)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("C07", ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB")),
        ("C08", ("RuntimeError", "unable to allocate shared memory(shm) for file </torch_1_2_0>: No space left on device (28)")),
        ("C08", ("RuntimeError", "DataLoader worker (pid 5) is killed by signal: Bus error. It is possible that dataloader's workers "
                 "are out of shared memory.")),
        ("C09", ("OSError", "[Errno 28] No space left on device")),
        ("C09", ("OSError", "[Errno 122] Disk quota exceeded: '/home/me/ckpt.pt'")),
        ("C10", ("OSError", "[Errno 24] Too many open files")),
        ("C10", ("RuntimeError", "received 0 items of ancdata")),
        ("C11", ("RuntimeError", "can't start new thread")),
        ("R04", ("DistNetworkError", "The server socket has failed to listen. port: 40441, code: -98, name: EADDRINUSE")),
        ("R05", ("RuntimeError", "[enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: ^lo")),
        ("R07", ("ValueError", "using env:// rendezvous: environment variable RANK expected, but not set")),
        ("R08", ("DistBackendError", "ncclInvalidUsage: Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000")),
        ("R09", ("RuntimeError", "Gloo connectFullMesh failed with [pair.cc:144] no error")),
        ("M08", ("RuntimeError", "Expected to have finished reduction in the prior iteration before starting a new one.")),
        ("M09", ("RuntimeError", "[1]: params[0] in this process with sizes [96, 32] appears not to match sizes of the same param in "
                 "process 0.")),
    ],
)  # fmt: skip
def test_an_exception_whose_meaning_is_known_is_named_by_it(crashed, exit_of, code, error):
    assert judged(crashed(exit_of(1, error=error), exit_of(0, after=20.1, error=LOST))) == [(code, (1,))]


def test_the_room_on_a_volume_is_shown_where_it_was_looked_at(crashed, exit_of, found):
    shm = Filesystem(what="shm", path="/dev/shm", total_bytes=4 << 20, free_bytes=0)
    looked = [HostSnapshot(host="algo-1", at_ns=1, filesystems=(shm,))]
    error = ("RuntimeError", "unable to write to file </torch_1>: No space left on device (28)")
    (finding,) = found("C08", crashed(exit_of(1, error=error), host_snapshots=looked))
    assert "/dev/shm has 0 of 4 MiB free on algo-1" in finding.saw


def test_two_faults_of_two_ranks_give_two_findings(crashed, exit_of):
    exits = exit_of(0, error=("KeyError", "'x'")), exit_of(1, -9, note=GROUP_FULL)
    assert judged(crashed(*exits)) == [("C01", (0,)), ("C02", (1,))]


def test_words_that_mean_something_else_in_a_script_that_trains_are_its_own_exception(crashed, exit_of):
    errors = [
        ("OSError", "[Errno 98] Address already in use"),
        ("ConnectionError", "failed to connect to metrics:9091: connection refused"),
        ("gaierror", "[Errno -2] Name or service not known"),
    ]
    assert [judged(crashed(exit_of(1, error=error))) for error in errors] == [[("C01", (1,))]] * 3


def test_a_script_that_ends_itself_with_a_code_is_not_said_to_have_raised(crashed, exit_of, found):
    exits = exit_of(0), exit_of(1, -15, after=21.0, signalled_by_us=True)
    (finding,) = found("C01", crashed(*exits, tails={0: "lr = 3\naccuracy is too low\n"}))
    assert finding.title == "script ended with an error code"
    assert finding.saw[1:] == ("its last line on stderr: accuracy is too low",)
    assert finding.next == ("paceline logs r-000001 --rank 0",)


@pytest.mark.parametrize(
    "said", ["./entry.sh: line 3: torchrun: command not found", "./entry.sh: 3: torchrun: not found"]
)
def test_a_program_that_a_shell_script_did_not_find_is_named_with_what_to_do(crashed, exit_of, found, said):
    (finding,) = found("C01", crashed(exit_of(0, 127), tails={0: f"{said}\n"}))
    assert finding.next[0].startswith("install torchrun, or put its directory on PATH")


EITHER = "unable to open shared memory object </torch_7_8> in read-write mode"


@pytest.mark.parametrize(
    ("sentence", "codes", "confidence"),
    [
        (f"{EITHER}: Too many open files (24)", ["C10"], Confidence.HIGH),
        (f"{EITHER}: No space left on device (28)", ["C08"], Confidence.HIGH),
        ("unable to resize file </torch_7_8> to the right size: No space left on device (28)", ["C08"], Confidence.HIGH),
        ("unable to write to file </torch_7_8>", ["C08"], Confidence.LIKELY),
        ("DataLoader worker (pid 5) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
         ["C08"], Confidence.LIKELY),
        (EITHER, ["C08", "C10"], Confidence.UNCLEAR),
        ("unable to mmap 4096 bytes from file </torch_7_8>: Cannot allocate memory (12)", ["C01"], Confidence.HIGH),
        ("unable to open file </torch_7_8> in read-only mode: No such file or directory (2)", ["C01"], Confidence.HIGH),
    ],
)  # fmt: skip
def test_the_errno_decides_which_limit_shared_memory_met(crashed, exit_of, sentence, codes, confidence):
    causes = [cause for cause in discover("causes") if cause.code[0] == "C"]
    findings = diagnose(crashed(exit_of(1, error=("RuntimeError", sentence))), causes).findings
    assert [finding.code for finding in findings] == codes
    assert {finding.confidence for finding in findings} == {confidence}


def test_a_sentence_with_two_causes_is_decided_by_what_was_looked_at(crashed, exit_of, found, snapshot):
    exits = (exit_of(1, error=("RuntimeError", EITHER)),)
    many = crashed(*exits, snapshots=[snapshot(1, open_files=1023, open_files_limit=1024)])
    (finding,) = found("C10", many)
    assert finding.confidence == Confidence.LIKELY and "rank 1 had 1,023 of 1,024 files open" in finding.saw
    assert found("C08", many) == []
    shm = Filesystem(what="shm", path="/dev/shm", total_bytes=64 << 20, free_bytes=0)
    full = crashed(*exits, host_snapshots=[HostSnapshot(host="algo-1", at_ns=1, filesystems=(shm,))])
    assert found("C08", full)[0].confidence == Confidence.LIKELY
    assert found("C10", full)[0].confidence == Confidence.UNCLEAR


def test_a_disk_is_surely_full_only_where_a_file_or_a_snapshot_says_so(crashed, exit_of, found):
    full = "[Errno 28] No space left on device"
    (finding,) = found("C09", crashed(exit_of(1, error=("OSError", full))))
    assert finding.confidence == Confidence.LIKELY
    (finding,) = found("C09", crashed(exit_of(1, error=("OSError", f"{full}: '/ckpt/model.pt'"))))
    assert finding.confidence == Confidence.HIGH


def test_a_python_without_torch_is_told_to_install_it(crashed, exit_of, found):
    exits = [exit_of(rank, error=("ModuleNotFoundError", "No module named 'torch'")) for rank in (0, 1)]
    here = [replace(exit, error=replace(exit.error, python="/srv/my envs/bin/python")) for exit in exits]
    (finding,) = found("C01", crashed(*here))
    assert finding.title == "this Python has no torch"
    assert finding.next[0] == "'/srv/my envs/bin/python' -m pip install torch"
    assert not any(text.startswith("edit") for text in finding.next)
    assert not any("before the next rank" in text for text in finding.saw)
    (finding,) = found("C01", crashed(*exits))
    assert finding.next[0] == "python -m pip install torch"


@pytest.mark.parametrize(
    ("type", "message", "source", "said"),
    [
        (
            "ValueError",
            "Attempt to convert a value (PerReplica:{\n  0: <tf.Tensor>}) with an unsupported type",
            "",
            "keras#20585",
        ),
        (
            "TypeError",
            "Trainer.compile() got an unexpected keyword argument 'experimental_run_tf_function'",
            "",
            "tf-keras",
        ),
        (
            "TypeError",
            "'list' object is not callable",
            "dist.broadcast_variables(opt.variables(), root_rank=0)",
            "tf-keras",
        ),
        ("AttributeError", "'Sequential' object has no attribute 'fit_generator'", "", "tf-keras"),
        ("ValueError", "Argument(s) not recognized: {'lr': 0.1}", "", "tf-keras"),
        ("AttributeError", "module 'tensorflow' has no attribute 'estimator'", "", "since TensorFlow 2.16"),
    ],
)
def test_a_script_for_another_keras_is_told_what_to_do(crashed, exit_of, found, type, message, source, said):
    exit = exit_of(1, error=(type, message))
    (finding,) = found("C01", crashed(replace(exit, error=replace(exit.error, source=source))))
    assert said in finding.next[0]


def test_a_list_that_is_called_elsewhere_is_the_scripts_own_mistake(crashed, exit_of, found):
    (finding,) = found("C01", crashed(exit_of(1, error=("TypeError", "'list' object is not callable"))))
    assert finding.next[0].startswith("edit ")


def test_a_torch_that_lacks_a_module_is_not_told_to_be_installed(crashed, exit_of, found):
    error = ("ModuleNotFoundError", "No module named 'torch.distributed'; 'torch' is not a package")
    (finding,) = found("C01", crashed(exit_of(1, error=error)))
    assert finding.title == "exception in the script"
    assert not any("pip install" in text for text in finding.next) and any(
        text.startswith("edit") for text in finding.next
    )


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/opt/ml/input/data/train-set/part-0.csv", "SM_CHANNEL_TRAIN_SET;"),
        ("/opt/ml/model/model.pt", "SM_MODEL_DIR"),
        ("/data/part-0.csv", ""),
    ],
)
def test_a_path_that_only_a_container_has_is_named_by_its_variable(crashed, exit_of, found, path, advice):
    error = ("FileNotFoundError", f"[Errno 2] No such file or directory: '{path}'")
    (finding,) = found("C01", crashed(exit_of(1, error=error)))
    assert advice in finding.next[0] if advice else finding.next[0].startswith("edit")


@pytest.mark.parametrize("package", ["sagemaker_training", "sagemaker_containers"])
def test_the_toolkit_of_a_container_is_named_with_what_holds_its_values(crashed, exit_of, found, package):
    error = ("ModuleNotFoundError", f"No module named '{package}.environment'")
    (finding,) = found("C01", crashed(exit_of(1, error=error)))
    assert "add sagemaker-training to requirements.txt" in finding.next[0]
    assert "SM_HPS" in finding.next[0] and "from os.environ" in finding.next[0]
    assert ("it is sagemaker_training today" in finding.next[0]) == (package == "sagemaker_containers")


def test_another_package_that_is_missing_may_be_the_scripts_own(crashed, exit_of, found):
    error = ("ModuleNotFoundError", "No module named 'models.resnet'")
    (finding,) = found("C01", crashed(exit_of(1, error=error)))
    assert "is models installed" in finding.next[0] and finding.next[1].startswith("edit")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("DataLoader worker (pid 32148) is killed by signal: Killed. ", "SIGKILL"),
        ("DataLoader worker (pid 32148) is killed by signal: Segmentation fault. ", "native code"),
        ("DataLoader worker (pid(s) 32148, 32149) exited unexpectedly", "last output of the worker"),
        (
            "DataLoader worker (pid 32148) exited unexpectedly with exit code 1. Details are lost",
            "last output of the worker",
        ),
    ],
)
def test_a_loader_worker_that_died_is_not_the_line_that_heard_of_it(crashed, exit_of, found, text, advice):
    ended = crashed(exit_of(1, error=("RuntimeError", text)), exit_of(0, after=20.1, error=LOST))
    assert [code for code, *_ in judged(ended)] == ["C12"]
    (finding,) = found("C12", ended)
    assert finding.ranks == (1,) and advice in finding.next[0]
    assert "rank 0 only lost the connection to it" in finding.ruled_out


def test_an_exception_that_a_loader_worker_hands_on_is_the_scripts_own(crashed, exit_of, codes_of):
    raised = exit_of(1, error=("KeyError", "Caught KeyError in DataLoader worker process 0."))
    assert codes_of(crashed(raised)) == ["C01"]


GAVE_UP = ("RuntimeError", "[unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete")


@pytest.fixture
def gave_up(crashed, exit_of, stall):
    """Rank 1 gave up after 6 s; `late`: who was waited for, as the recording has it."""

    def make(*more, late=(0,), **fields):
        seen = stall(late=late, waiting=(1,), since_ns=SINCE, operation="barrier")
        event = {"event": "standstill", "attempt": 0, "standstill": to_plain(seen)}
        over = {"event": "standstill_over", "attempt": 0}
        return crashed(exit_of(1, after=26.0, error=GAVE_UP), *more, events=(event, over), **fields)

    return make


def test_ranks_that_gave_up_waiting_name_the_one_that_was_late(gave_up, exit_of, snapshot, found):
    ours = exit_of(0, -15, after=27.0, signalled_by_us=True)
    saves = snapshot(0, "/lib/python3/site-packages/torch/serialization.py:900 save", "/home/me/train.py:70 main")
    (finding,) = found("C13", gave_up(ours, snapshots=[saves]))
    assert (finding.ranks, finding.confidence) == ((0,), Confidence.HIGH)
    assert "rank 1 had waited in barrier for rank 0 for 6.0 s" in finding.saw[1]
    assert "saves or loads a checkpoint at /home/me/train.py:70" in finding.saw[2]
    assert found("C13", gave_up(ours))[0].confidence is Confidence.LIKELY
    # It came at last, and found the others gone.
    came = exit_of(0, after=35.0, error=LOST)
    assert found("C13", gave_up(came, snapshots=[saves]))[0].ranks == (0,)


def test_a_time_out_of_which_nobody_saw_who_was_late_names_nobody(gave_up, exit_of, found):
    assert found("C13", gave_up(late=())) == []
    # The late rank ended by itself, and its own end says more.
    assert found("C13", gave_up(exit_of(0, -9, after=25.0))) == []


# What multiprocessing says in the process that was started, which imports the script as its main module.
UNGUARDED = """RuntimeError:
        An attempt has been made to start a new process before the
        current process has finished its bootstrapping phase.
"""


@pytest.mark.parametrize(
    "error",
    [
        ("ConnectionResetError", "[Errno 104] Connection reset by peer"),
        ("BrokenPipeError", "[Errno 32] Broken pipe"),
        ("EOFError", ""),
        ("RuntimeError", "DataLoader worker (pid(s) 512) exited unexpectedly"),
    ],
)
def test_a_script_without_a_guard_is_its_own_cause_whatever_its_ranks_say(crashed, exit_of, found, error):
    """From Python 3.14 on the first of these is what the workers of an ordinary script give."""
    exits = [exit_of(rank, after=20.0 + rank, error=error) for rank in (0, 1)]
    ended = crashed(*exits, tails=dict.fromkeys((0, 1), f"{UNGUARDED}\n{error[0]}: {error[1]}"))
    assert judged(ended) == [("C01", (0, 1))]
    (finding,) = found("C01", ended)
    assert finding.title == "the script starts processes where it is imported"
    assert "__main__" in finding.next[0] and "fork" in finding.next[1]


def test_a_lost_connection_alone_says_nothing_of_a_guard(crashed, exit_of, found):
    exits = exit_of(1, error=("KeyError", "'x'")), exit_of(0, after=20.1, error=("ConnectionResetError", LOST[1]))
    (finding,) = found("C01", crashed(*exits, tails={0: "ConnectionResetError: [Errno 104] Connection reset by peer"}))
    assert finding.ranks == (1,) and "guard" not in finding.title


@pytest.mark.parametrize(
    ("joined", "line", "advice"),
    [
        ("10.93.0.2", "Gloo connectFullMesh failed with timed out connecting: remote=[127.0.0.1]:2455", "GLOO_SOCKET_IFNAME"),
        ("10.93.0.2", "Gloo connectFullMesh failed with timed out connecting: remote=[10.93.0.2]:2455", "allow every TCP port"),
        ("127.0.0.2", "Gloo connectFullMesh failed with timed out connecting: remote=[127.0.0.2]:2455", "allow every TCP port"),
    ],
)  # fmt: skip
def test_a_mesh_that_was_tried_to_a_loopback_address_is_no_matter_of_ports(
    crashed, exit_of, found, joined, line, advice
):
    case = crashed(exit_of(1, error=("RuntimeError", line)), events=({"event": "host_joined", "address": joined},))
    (finding,) = found("R09", case)
    assert advice in finding.next[0]
