"""The stand-in for a GPU and NCCL: what torch's own recorders say of ranks that hang on it is what they say on a machine with GPUs."""

import json
import os
import subprocess
from pathlib import Path

import build_fake_gpu
import pytest
from build_fake_gpu import functions_that_succeed, nccl_environment, reason_to_skip
from install_torch import python_of

SCRIPT = Path(__file__).with_name("nccl_situations.py")
# Up to 2.14 `nccl` is ProcessGroupNCCL, which has a recorder of its own; from 2.15 on it is ProcessGroupNCCL2.
QUESTION = {"2.8.0": "dump_nccl_trace_json", "2.13.0": "dump_nccl_trace_json", "2.15.0": "fr_trace_json?backend=nccl2"}
REDUCE = ("0", "all_reduce", 5)


def of_real_ranks(test):
    """One run of the script, of all situations, belongs to the first of these."""
    return pytest.mark.process(pytest.mark.timeout(300)(test))


@pytest.fixture(scope="module", params=QUESTION)
def situations(request):
    """What the ranks answered in each situation, on one torch: situation -> rank -> question -> document."""
    if reason := reason_to_skip(request.param):
        pytest.skip(reason)
    environment = {**os.environ, **nccl_environment(request.param), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python_of(request.param), SCRIPT], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return request.param, {one["situation"]: one["answers"] for one in told}


def open_calls(situations, name):
    """What is not over: rank -> (group, operation, number) of each, in the recorder of the backend that `nccl` is."""
    version, answers = situations
    return {
        int(rank): [
            (entry["process_group"][0], entry["profiling_name"].partition(":")[2], entry["collective_seq_id"])
            for entry in documents[QUESTION[version]].get("entries", [])
            if entry["state"] != "completed" and not entry["retired"]
        ]
        for rank, documents in answers[name].items()
    }


@of_real_ranks
def test_collectives_that_all_have_called_end(situations):
    assert open_calls(situations, "healthy") == {rank: [] for rank in range(4)}


@of_real_ranks
def test_a_rank_that_does_not_come_keeps_the_others_waiting(situations):
    assert open_calls(situations, "missing_rank") == {0: [REDUCE], 1: [], 2: [REDUCE], 3: [REDUCE]}


@of_real_ranks
def test_ranks_that_call_different_collectives_do_not_meet(situations):
    other = [("0", "_all_gather_base", 5)]
    assert open_calls(situations, "mismatched_operation") == {0: [REDUCE], 1: [REDUCE], 2: other, 3: [REDUCE]}


@of_real_ranks
def test_ranks_that_call_with_different_sizes_do_not_meet(situations):
    assert open_calls(situations, "mismatched_size") == {rank: [REDUCE] for rank in range(4)}


@of_real_ranks
def test_a_collective_may_hang_on_the_device_with_all_ranks_in_it(situations):
    assert open_calls(situations, "hung_kernel") == {rank: [REDUCE, ("0", "broadcast", 6)] for rank in range(4)}


@of_real_ranks
def test_a_kernel_that_never_ends_holds_back_the_collective_behind_it(situations):
    assert open_calls(situations, "blocked_stream") == {rank: [REDUCE] for rank in range(4)}


@of_real_ranks
def test_groups_wait_for_each_other_in_a_chain(situations):
    # 0 waits for 2 and 1 for 3 in the groups across, 2 waits for 3 in its pair.
    reduce = {name: [(name, "all_reduce", 4)] for name in "234"}
    assert open_calls(situations, "several_groups") == {0: reduce["3"], 1: reduce["4"], 2: reduce["2"], 3: []}


@of_real_ranks
def test_messages_wait_for_their_other_end(situations):
    version, answers = situations
    if version == "2.15.0":
        # A batch of messages reads as over there; only the counters show it.
        status = {
            rank: documents[QUESTION[version]]["pg_status"]["0"]
            for rank, documents in answers["point_to_point"].items()
        }
        counters = {
            rank: (one["last_enqueued_collective"], one["last_completed_collective"]) for rank, one in status.items()
        }
        assert counters == {"0": ("5", "3"), "1": ("5", "3"), "2": ("3", "3"), "3": ("5", "3")}
    else:
        waiting = open_calls(situations, "point_to_point")
        batches = {rank: [name for _, name, _ in calls if name == "coalesced"] for rank, calls in waiting.items()}
        # Rank 0 has both its neighbours.
        assert batches == {0: [], 1: ["coalesced"], 2: [], 3: ["coalesced"]}


@of_real_ranks
def test_a_stuck_driver_answers_no_question_that_asks_it(situations):
    version, answers = situations
    others = {rank: documents for rank, documents in answers["stuck_driver"].items() if rank != "1"}
    stuck = answers["stuck_driver"]["1"]
    assert all(documents[QUESTION[version]] for documents in others.values())
    assert stuck["dump_nccl_trace_json?includecollectives=false"] is not None
    # The recorder of ProcessGroupNCCL asks the driver for each entry, that of ProcessGroupNCCL2 for none.
    assert (stuck[QUESTION[version]] is None) == (version != "2.15.0")


def test_a_torch_without_cuda_or_that_is_not_installed_has_no_stand_in(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_TORCHES", str(tmp_path))
    assert reason_to_skip("2.15.0") == "torch 2.15.0 is not installed: make torch-2.15.0"
    (tmp_path / "2.15.0/lib/python3.11/site-packages/torch/lib").mkdir(parents=True)
    (tmp_path / "2.15.0/READY").touch()
    assert reason_to_skip("2.15.0") == "torch 2.15.0 has no CUDA"


def test_a_library_is_built_once_for_each_text_of_its_sources(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_TORCHES", str(tmp_path))
    site = tmp_path / "2.15.0/lib/python3.11/site-packages"
    for name in ("torch/lib/libc10_cuda.so", "nvidia/cu13/include/cuda_runtime_api.h"):
        (site / name).parent.mkdir(parents=True)
        (site / name).touch()
    (tmp_path / "2.15.0/READY").touch()
    built = []
    monkeypatch.setattr(build_fake_gpu, "build", lambda _, headers, library: (built.append(headers), library.touch()))
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/found")
    first = nccl_environment("2.15.0")["LD_PRELOAD"]
    assert nccl_environment("2.15.0")["LD_PRELOAD"] == first and built == [site / "nvidia/cu13/include"]
    monkeypatch.setattr(build_fake_gpu, "SOURCES", tmp_path)
    (tmp_path / "other.cpp").write_text("int other;")
    assert nccl_environment("2.15.0")["LD_PRELOAD"] != first


def test_of_the_functions_that_torch_has_no_use_for_here_each_succeeds():
    code = functions_that_succeed({"cuMemMap", "cublasSgemm_v2"})
    assert [line.rpartition("int ")[2] for line in code.splitlines()] == [
        "cuMemMap() { return 0; }",
        "cublasSgemm_v2() { return 0; }",
    ]
