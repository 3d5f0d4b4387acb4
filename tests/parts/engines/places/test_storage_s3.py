"""Channels, artefacts and checkpoints by URL, against a real S3 server process: parallel, by host, resumed, broken off, refused."""

import importlib.util
import io
import json
import os
import re
import signal
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_store import CREDENTIALS, Door, S3Server, s3_is_here

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

_SPEC = importlib.util.spec_from_file_location(
    "process_conftest", Path(__file__).parents[3] / "process" / "conftest.py"
)
_PROCESS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_PROCESS)
paceline = _PROCESS.paceline

BUCKET = "training"
SHOWS = """
import json, os, pathlib
root = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
found = {str(path.relative_to(root)): path.read_text()[:20] for path in sorted(root.rglob("*")) if path.is_file()}
print(json.dumps({"host": os.environ["SM_CURRENT_HOST"], "found": found}), flush=True)
"""
LEAVES = """
import os, pathlib, sys
host, base = os.environ["SM_CURRENT_HOST"], pathlib.Path(os.environ["SAGEMAKER_BASE_DIR"])
model, output, checkpoints = pathlib.Path(os.environ["SM_MODEL_DIR"]), pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"]), base / "checkpoints"
print(host, "found", sorted(path.name for path in checkpoints.iterdir()), flush=True)
(model / "model.pt").write_text(f"weights of {host}")
(model / "labels.txt").write_text("the same everywhere")
(output / f"log-{host}.txt").write_text("loss")
(checkpoints / "last.pt").write_text(f"state of {host}")
(checkpoints / f"shard-{host}.pt").write_text("shard")
sys.exit(int((sys.argv[1:] or ["0"])[0]))
"""
WAITS = "import time\nprint('up', flush=True)\ntime.sleep(300)\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    reason = s3_is_here()
    if reason is not None:
        pytest.skip(reason)
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        server.client.create_bucket(Bucket=BUCKET)
        server.put(BUCKET, **{f"data__part-{number}.txt": b"x" * (1000 + number) for number in range(8)})
        # Another prefix that begins with the same letters.
        server.put(BUCKET, **{"data-2__other.txt": b"other", "data__deep__er.txt": b"deep"})
        yield server


@pytest.fixture
def door(server: S3Server) -> Iterator[Door]:
    with Door(server.port) as door:
        yield door


@pytest.fixture
def run(paceline, door):
    """`paceline run WORDS` with credentials that mean nothing and the door for S3."""
    return lambda *argv, **options: paceline.run(
        "run", *argv, **{**CREDENTIALS, "AWS_ENDPOINT_URL": door.url}, **options
    )


def start(paceline, door: Door, *argv: str):
    return paceline.start("run", *argv, **CREDENTIALS, AWS_ENDPOINT_URL=door.url)


def shown(out: str) -> dict[str, list[str]]:
    return {line["host"]: list(line["found"]) for line in map(json.loads, out.splitlines())}


def events(paceline, kind: str | None = None) -> list[dict]:
    runs = sorted((paceline.directory / ".paceline" / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    lines = [json.loads(line) for line in (runs[-1] / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if kind is None or line["event"] == kind]


def archive(server: S3Server, key: str) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(server.get(BUCKET, key))) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


EVERYTHING = ["deep/er.txt", *(f"part-{number}.txt" for number in range(8))]


def test_a_prefix_is_fetched_in_parallel_and_nothing_of_a_longer_name(paceline, run, door):
    finished = run("--channel", f"train=s3://{BUCKET}/data", paceline.script("shows.py", SHOWS))
    assert finished.code == 0, finished.err
    assert list(shown(finished.out).values()) == [EVERYTHING]
    assert door.most_at_once > 1
    states = [event["secondary_status"] for event in events(paceline, "status")]
    assert states == ["Pending", "Downloading", "Training", "Completed"]
    assert "fetched channel train: 9 files" in finished.err


def test_each_host_fetches_its_share_and_no_rank_starts_before_all_are_there(paceline, run, door):
    argv = ["--local-hosts", "2", "--channel", f"train=s3://{BUCKET}/data:ShardedByS3Key"]
    finished = run(*argv, paceline.script("shows.py", SHOWS))
    assert finished.code == 0, finished.err
    assert shown(finished.out) == {"algo-1": EVERYTHING[::2], "algo-2": EVERYTHING[1::2]}
    assert sorted(door.files()) == sorted(f"/{BUCKET}/data/{name}" for name in EVERYTHING)
    happened = [(event["event"], event.get("state")) for event in events(paceline)]
    last_fetched = max(index for index, event in enumerate(happened) if event == ("transfer", "done"))
    assert last_fetched < happened.index(("rank_started", None))
    assert "warning[U15]" in finished.err


def test_a_manifest_names_the_files_and_fastfile_is_file_with_one_notice(paceline, run, server):
    manifest = [{"prefix": f"s3://{BUCKET}/data/"}, "part-3.txt", "deep/er.txt"]
    server.put(BUCKET, lists__two=json.dumps(manifest).encode())
    finished = run(
        "--channel", f"train=s3://{BUCKET}/lists/two:ManifestFile:FastFile", paceline.script("shows.py", SHOWS)
    )
    assert finished.code == 0, finished.err
    assert list(shown(finished.out).values()) == [["deep/er.txt", "part-3.txt"]]
    assert finished.err.count("FastFile is File here") == 1


def test_a_second_job_fetches_only_what_has_changed(paceline, run, door, server):
    server.put(BUCKET, **{"again__a.txt": b"a", "again__b.txt": b"b", "again__c.txt": b"c"})
    argv = ("--channel", f"train=s3://{BUCKET}/again", paceline.script("shows.py", SHOWS))
    assert run(*argv).code == 0
    server.put(BUCKET, again__b=b"unseen", **{"again__b.txt": b"B"})
    server.client.delete_object(Bucket=BUCKET, Key="again/c.txt")
    before = len(door.files())
    finished = run(*argv)
    assert sorted(door.files()[before:]) == [f"/{BUCKET}/again/b", f"/{BUCKET}/again/b.txt"]
    assert json.loads(finished.out)["found"] == {"a.txt": "a", "b": "unseen", "b.txt": "B"}


def test_a_job_that_is_killed_half_way_goes_on_where_it_was(paceline, run, door, server):
    door.hold_after = 4
    argv = ("--channel", f"train=s3://{BUCKET}/data", paceline.script("shows.py", SHOWS))
    job = start(paceline, door, *argv)
    kept = paceline.directory / ".paceline" / "data"
    job.until(lambda: len(list(kept.glob("*/files/**/*.txt"))) == 4 and len(door.files()) > 4)
    complete = {path.name for path in kept.glob("*/files/**/*.txt")}
    os.kill(job.process.pid, signal.SIGKILL)
    job.wait()
    # What moves files has nobody left to move them for.
    deadline = time.monotonic() + 20
    while paceline.left():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not list(kept.glob("*/records/finished.json"))
    with Door(server.port) as second:
        finished = paceline.run("run", *argv, **CREDENTIALS, AWS_ENDPOINT_URL=second.url)
        assert finished.code == 0, finished.err
        assert not complete & {path.rpartition("/")[2] for path in second.files()}
    assert list(shown(finished.out).values()) == [EVERYTHING]
    assert "4 of them were here" in finished.err


@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM"])
def test_a_stop_while_data_are_fetched_waits_for_no_store(paceline, door, end):
    """The store holds its answer back until the test ends; whoever waited for it would wait for a minute."""
    door.hold_after = 2
    argv = ["--local-hosts", "2", "--channel", f"train=s3://{BUCKET}/data"]
    job = start(paceline, door, *argv, paceline.script("shows.py", SHOWS))
    job.until(lambda: len(door.files()) > 2)
    asked = time.monotonic()
    job.process.send_signal(signal.Signals[end])
    finished = job.wait()
    assert time.monotonic() - asked < 15.0, finished.err
    assert finished.code == {"SIGINT": 130, "SIGTERM": 204}[end], finished.err
    assert finished.out == "" and not paceline.left()


def test_a_store_that_goes_away_half_way_is_told_with_what_is_here(paceline, door):
    door.hold_after = 3
    job = start(paceline, door, "--channel", f"train=s3://{BUCKET}/data", paceline.script("shows.py", SHOWS))
    kept = paceline.directory / ".paceline" / "data"
    job.until(lambda: len(list(kept.glob("*/files/**/*.txt"))) == 3)
    door.close()
    finished = job.wait(120)
    assert finished.code == 2 and finished.out == ""
    assert "error[E53]: channel 'train' could not be fetched: s3://training/data: broken off" in finished.err
    assert re.search(r"saw .*3 of 9 files are here, whole", finished.err)
    assert "next      start the job again: only what is missing is fetched" in finished.err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ("--channel", "train=s3://no-such-bucket/data"),
            "error[E51]: channel 'train' cannot be read: s3://no-such-bucket/data",
        ),
        (
            ("--channel", f"train=s3://{BUCKET}/nothing"),
            f"error[E51]: channel 'train' cannot be read: s3://{BUCKET}/nothing",
        ),
        (
            ("--output", "s3://no-such-bucket/out"),
            "error[E51]: what the job leaves cannot be sent: s3://no-such-bucket/out/",
        ),
        (("--checkpoints", "s3://no-such-bucket/c"), "error[E51]: checkpoints cannot be kept: s3://no-such-bucket/c/"),
        (("--channel", f"train=s3://{BUCKET}/data:AugmentedManifestFile"), "error[U06]: an AugmentedManifestFile"),
        (("--output", "gopher://host/out"), "error[E01]: nothing installed can reach gopher://host/out/"),
    ],
)
def test_what_cannot_be_reached_is_refused_before_anything_starts(paceline, run, argv, said):
    finished = run(*argv, paceline.script("shows.py", SHOWS))
    assert finished.code == 2 and said in finished.err, finished.err
    assert "  saw       " in finished.err and "  next      " in finished.err
    assert not (paceline.directory / ".paceline").exists()


def test_missing_credentials_are_said_so_and_others_are_never_shown(paceline, door):
    script = paceline.script("shows.py", SHOWS)
    without = {"AWS_ENDPOINT_URL": door.url, "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(paceline.directory)}
    finished = paceline.run("run", "--channel", f"train=s3://{BUCKET}/data", script, **without)
    assert finished.code == 2 and "error[E52]" in finished.err and "no usable credentials" in finished.err


def test_the_model_of_every_host_is_in_one_archive_and_no_name_is_overwritten(paceline, run, server):
    argv = ["--local-hosts", "2", "--output", f"s3://{BUCKET}/out", "--set", "run_id=r-models"]
    finished = run(*argv, paceline.script("leaves.py", LEAVES))
    assert finished.code == 0, finished.err
    assert server.keys(BUCKET, "out/") == ["out/r-models/output/model.tar.gz", "out/r-models/output/output.tar.gz"]
    assert archive(server, "out/r-models/output/model.tar.gz") == {
        "model.pt": b"weights of algo-1",
        "labels.txt": b"the same everywhere",
        "algo-2/model.pt": b"weights of algo-2",
    }
    assert set(archive(server, "out/r-models/output/output.tar.gz")) == {"log-algo-1.txt", "log-algo-2.txt"}
    assert "warning[E54]: model.pt of model.tar.gz was left by algo-1 and by algo-2" in finished.err
    assert [event["secondary_status"] for event in events(paceline, "status")][-2:] == ["Uploading", "Completed"]


def test_a_job_that_failed_keeps_its_code_and_sends_no_model(paceline, run, server):
    argv = ["--output", f"s3://{BUCKET}/failed", "--set", "run_id=r-failed"]
    finished = run(*argv, paceline.script("leaves.py", LEAVES), "7")
    assert finished.code == 7
    assert server.keys(BUCKET, "failed/") == ["failed/r-failed/output/output.tar.gz"]


def test_a_model_that_cannot_be_sent_is_an_error_of_a_job_that_was_well(paceline, door):
    waits = LEAVES.replace(
        "sys.exit", "print('written', flush=True); sys.stdin.read() or __import__('time').sleep(0)\nsys.exit"
    )
    gate = paceline.directory / "gate"
    waits = waits.replace("sys.stdin.read() or __import__('time').sleep(0)", f"open({str(gate)!r}).read()")
    os.mkfifo(gate)
    job = start(paceline, door, "--output", f"s3://{BUCKET}/gone", paceline.script("leaves.py", waits))
    job.until_printed("written")
    door.close()
    gate.write_text("go")
    finished = job.wait(120)
    assert finished.code == 1, finished.err
    assert "error[E53]: model.tar.gz could not be sent" in finished.err and "the file is kept here: " in finished.err
    kept = re.search(r"the file is kept here: (\S+)", finished.err)[1]
    with tarfile.open(kept) as tar:
        assert "model.pt" in tar.getnames()
    assert [event for event in events(paceline, "finding") if event["code"] == "E53"]


def test_who_will_not_wait_for_the_model_asks_twice(paceline, door):
    door.hold_method, door.hold_after = "PUT", 0
    job = start(paceline, door, "--output", f"s3://{BUCKET}/held", paceline.script("leaves.py", LEAVES))
    job.until(lambda: bool(door.files("PUT")))
    job.process.send_signal(signal.SIGINT)
    job.until(lambda: "what the job left is being sent" in job.err)
    job.process.send_signal(signal.SIGINT)
    finished = job.wait(30)
    assert finished.code == 1 and finished.err.count("error[E53]") == 1, finished.err
    assert "somebody asked for an end at once" in finished.err and not paceline.left()


def test_what_one_attempt_fetched_the_next_one_has(paceline, run, door):
    fails_once = "import os, sys\nsys.exit(1 if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else 0)\n"
    argv = ["--local-hosts", "2", "--max-restarts", "1", "--channel", f"train=s3://{BUCKET}/data"]
    finished = run(*argv, "--checkpoints", f"s3://{BUCKET}/retried", paceline.script("fails.py", fails_once))
    assert finished.code == 0, finished.err
    assert len(door.files()) == len(EVERYTHING)
    states = [event["secondary_status"] for event in events(paceline, "status")]
    assert states.count("Downloading") == states.count("Training") == 2


def test_checkpoints_come_back_in_the_next_job_and_a_name_of_two_hosts_is_told(paceline, run, server):
    argv = ["--local-hosts", "2", "--checkpoints", f"s3://{BUCKET}/state"]
    script = paceline.script("leaves.py", LEAVES)
    first = run(*argv, script)
    assert first.code == 0, first.err
    assert server.keys(BUCKET, "state/") == ["state/last.pt", "state/shard-algo-1.pt", "state/shard-algo-2.pt"]
    said = re.search(r"warning\[E54\]: checkpoint last.pt was written by (algo-\d) and by (algo-\d)", first.err)
    assert server.get(BUCKET, "state/last.pt").decode() == f"state of {said[1]}"
    second = run(*argv, script)
    names = "['last.pt', 'shard-algo-1.pt', 'shard-algo-2.pt']"
    assert sorted(second.out.splitlines()) == [f"algo-1 found {names}", f"algo-2 found {names}"], second.err


def test_checkpoints_are_sent_while_the_job_runs_and_deleted_only_when_asked(paceline, run, door, server):
    writes = (
        "import os, pathlib, time\n"
        "folder = pathlib.Path(os.environ['SAGEMAKER_BASE_DIR'], 'checkpoints')\n"
        "(folder / 'step-1.pt').write_text('one')\nprint('written', flush=True)\ntime.sleep(300)\n"
    )
    job = start(paceline, door, "--checkpoints", f"s3://{BUCKET}/live", paceline.script("writes.py", writes))
    job.until_printed("written")
    job.until(lambda: server.keys(BUCKET, "live/") == ["live/step-1.pt"])
    job.process.send_signal(signal.SIGTERM)
    job.wait()
    deletes = writes.replace("(folder / 'step-1.pt').write_text('one')", "(folder / 'step-1.pt').unlink()")
    script = paceline.script("deletes.py", deletes.replace("time.sleep(300)", ""))
    assert run("--checkpoints", f"s3://{BUCKET}/live", script).code == 0
    assert server.keys(BUCKET, "live/") == ["live/step-1.pt"]
    assert run("--checkpoints", f"s3://{BUCKET}/live", "--set", "checkpoints_delete=true", script).code == 0
    assert server.keys(BUCKET, "live/") == []


def test_the_digits_example_leaves_a_model_that_can_be_loaded(paceline, run, server, examples, tmp_path):
    argv = ["--nproc-per-node", "2", "--output", f"s3://{BUCKET}/digits", "--set", "run_id=r-digits"]
    finished = run(*argv, str(examples / "digits_ddp.py"), "--epochs", "8", OMP_NUM_THREADS="1", timeout=150)
    assert finished.code == 0, finished.err
    import torch

    state = torch.load(
        io.BytesIO(archive(server, "digits/r-digits/output/model.tar.gz")["model.pt"]), weights_only=True
    )
    assert sum(value.numel() for value in state.values()) > 10_000


def test_no_credential_is_in_the_recording(paceline, run):
    finished = run(
        "--channel", f"train=s3://{BUCKET}/data", "--output", f"s3://{BUCKET}/o", paceline.script("shows.py", SHOWS)
    )
    assert finished.code == 0
    written = b"".join(path.read_bytes() for path in (paceline.directory / ".paceline").rglob("*") if path.is_file())
    assert b"dummy-secret-of-a-test" not in written + finished.err.encode()
