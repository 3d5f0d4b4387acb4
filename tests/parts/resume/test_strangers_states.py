"""Saved states and recordings that another user of the machine has written, or could have: nothing is run, ended, written or waited for."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress

import msgspec
import pytest
import torch
from saved_runs import JOB, job, saved_by_two_ranks, saved_run

from paceline.cli import main
from paceline.errors import UsageError
from paceline.part import Observation
from paceline.parts.engines.jobs import note_end
from paceline.parts.resume.agent.save_newest_step import StateSaving
from paceline.parts.resume.recording.saved_state import (
    Manifest,
    NoManifest,
    SavedFile,
    SavedRank,
    manifest_text,
    parse_manifest,
)
from paceline.parts.resume.recording.state_buffer import DOCUMENT, new_buffer, packed
from paceline.parts.resume.resume_from import load_state
from paceline.parts.resume.saved_steps import marks_of, place_of, saved_steps
from paceline.parts.resume.state_store import state_store
from paceline.parts.resume.worker.slots import StateSlots
from paceline.process_identity import boot_id, start_ticks
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import create_run, earlier_tries, find_run, newest_try
from paceline.recording.writer import JsonLines, append_whole_records

# A state that hangs its reader fails its test.
pytestmark = pytest.mark.timeout(120)
SOMEBODY_ELSE = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def world(tmp_path, monkeypatch):
    with saved_by_two_ranks(tmp_path, monkeypatch):
        yield tmp_path


def give_away(*paths):
    for path in paths:
        os.lchown(path, SOMEBODY_ELSE, SOMEBODY_ELSE)


def code_of_resume(world):
    """The code with which going on from r-1 is refused, and what is said; or the step."""
    try:
        loaded = load_state(job(world, "r-1"), {}, world)
    except UsageError as error:
        return error.code, f"{error.what} {error.saw} {error.next}"
    loaded.states.close()
    return loaded.step, " ".join(loaded.notices)


# ------------------------------------------------------------------------------------------------- a state is a program


@needs_root
@pytest.mark.parametrize(
    "theirs",
    [".", "run.json", "state", "state/step-7", "state/step-7/manifest.json", "state/step-7/*.msgpack", "state/step-7/*.safetensors"],
)  # fmt: skip
def test_nobody_goes_on_from_what_another_user_could_have_written(world, theirs):
    run = world / "r-1"
    give_away(*(run.glob(theirs) if theirs != "." else [run]))
    code, said = code_of_resume(world)
    assert code == "U25" and f"'#{SOMEBODY_ELSE}'" in said
    store = state_store(str(run / "state"), own_verb="paceline run --resume")
    if theirs.startswith("state"):
        with pytest.raises(UsageError, match="belongs to another user"):
            manifests, _ = saved_steps(store)
            for rank in manifests[0].ranks:
                for file in (rank.plain, rank.tensors):
                    b"".join(store.read(f"step-7/{file.name}"))


@needs_root
def test_a_place_that_another_user_has_noted_is_not_asked(world):
    note = world / "r-1/state/place.json"
    note.write_text(json.dumps({"place": "https://203.0.113.1/state"}))
    give_away(note)
    assert place_of("r-1", world, verb="paceline resume --export", may_run=True) == str(world / "r-1/state")


@needs_root
@pytest.mark.parametrize("entry", ["directory", "link"])
def test_what_another_user_lays_beside_a_run_is_none_of_its_tries(world, entry):
    (world / "r-1/submission.json").write_text("{}")
    theirs = world / "r-1.2"
    if entry == "link":
        shutil.copytree(world / "r-1", world / "other")
        theirs.symlink_to(world / "other")
        give_away(theirs)
    else:
        shutil.copytree(world / "r-1", theirs)
        give_away(theirs, *theirs.rglob("*"))
    assert newest_try(world / "r-1") == find_run("r-1", world) == world / "r-1"
    own = world / "r-1.3"
    shutil.copytree(world / "r-1", own)
    assert earlier_tries(own) == [world / "r-1"]
    assert code_of_resume(world)[0] == 7


# ----------------------------------------------------------------------------------------- a state that harms its reader


def resealed(folder, change):
    """Write the manifest of a step anew, as a stranger would: with checksums that are right."""
    path = folder / "manifest.json"
    path.write_bytes(manifest_text(change(parse_manifest(path.read_bytes()))))


def renamed(manifest: Manifest, file: SavedFile) -> Manifest:
    first, *others = manifest.ranks
    return msgspec.structs.replace(manifest, ranks=(SavedRank(first.tensors, file, None), *others))


NAMES = [
    "/dev/zero", "../../../../../dev/zero", "..", ".", "", "a/b.msgpack", "x\0.msgpack", "manifest.json", "/proc/self/mem",
    "a" * 300 + ".msgpack",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_manifest_that_names_another_file_is_damaged(world, name):
    resealed(world / "r-1/state/step-7", lambda found: renamed(found, SavedFile(name, 1, "00")))
    assert code_of_resume(world)[0] == 6


@pytest.mark.parametrize("size", [-1, 1 << 60])
def test_a_manifest_of_impossible_sizes_is_damaged(world, size):
    resealed(world / "r-1/state/step-7", lambda found: renamed(found, SavedFile("a.msgpack", size, "00")))
    assert code_of_resume(world)[0] == 6
    with pytest.raises(NoManifest, match=f"no save writes: 'a.msgpack', {size} bytes"):
        parse_manifest((world / "r-1/state/step-7/manifest.json").read_bytes())


def lay(path, kind):
    path.unlink()
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "zero":
            path.symlink_to("/dev/zero")
        case "directory":
            path.mkdir()
        case "link":
            path.with_name("elsewhere").write_bytes(b"x")
            path.symlink_to(path.with_name("elsewhere"))
        case "socket":
            os.mknod(path, 0o140600)
        case "endless":
            with path.open("wb") as file:
                file.truncate(1 << 40)


KINDS = ["fifo", "zero", "directory", "link", "socket", "endless"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", ["*.msgpack", "*.safetensors", "manifest.json"])
def test_a_file_of_another_kind_makes_nobody_wait(world, kind, file, tmp_path, monkeypatch):
    for path in list((world / "r-1/state/step-7").glob(file)):
        lay(path, kind)
    assert code_of_resume(world)[0] == 6
    for path in list((world / "r-1/state/step-6").glob(file)):
        lay(path, kind)
    monkeypatch.chdir(tmp_path)
    assert main(["resume", "--export", str(world / "r-1/state"), "out.pt"]) == 2 and not os.path.exists("out.pt")


def test_a_linked_directory_of_a_step_is_none(world):
    (world / "r-1/state/step-7").rename(world / "step-7")
    (world / "r-1/state/step-7").symlink_to(world / "step-7")
    assert code_of_resume(world)[0] == 6


def replaced(folder, kind, content):
    """Put other content into a file of rank 0, with its size and checksum in the manifest."""
    manifest = parse_manifest((folder / "manifest.json").read_bytes())
    file = getattr(manifest.ranks[0], kind)
    (folder / file.name).write_bytes(content)
    told = SavedFile(file.name, len(content), hashlib.sha256(content).hexdigest())
    first = msgspec.structs.replace(manifest.ranks[0], **{kind: told})
    resealed(folder, lambda found: msgspec.structs.replace(found, ranks=(first, *found.ranks[1:])))


MARSHALS = [
    b"", b"\xe9\xff\xff\xff\x7f", b"\xdb\xff\xff\xff\x7f", b"\xe3" + b"\xff" * 40,
    b"(\x01\x00\x00\x00" * 100_000, b"r\xff\xff\xff\x7f", packed(()),
]  # fmt: skip


@pytest.mark.parametrize("content", [*MARSHALS, b"\x92\xa4list" * 100_000], ids=range(len(MARSHALS) + 1))
def test_plain_values_that_crash_a_reader_of_marshal_are_damaged(world, content):
    replaced(world / "r-1/state/step-7", "plain", content)
    assert code_of_resume(world)[0] == 6


def tensors(text):
    return len(text).to_bytes(8, "little") + text


HEADERS = [
    tensors(b'{"0": {"data_offsets": [0, 1099511627776]}}'), tensors(b'{"0": {"data_offsets": [9, 0]}}'), tensors(b"[" * 100_000),
    b"\xff" * 8, tensors(b'{"0": {"data_offsets": [0, 1e400]}}'), tensors(b'{"0": {"data_offsets": "ab"}}'), tensors(b"1"),
]  # fmt: skip


@pytest.mark.parametrize("content", HEADERS, ids=range(len(HEADERS)))
def test_tensors_that_take_more_memory_than_their_file_has_bytes_are_damaged(world, content):
    replaced(world / "r-1/state/step-7", "tensors", content)
    assert code_of_resume(world)[0] == 6


@pytest.mark.process
@pytest.mark.parametrize("kind", ["tuple", "list", "dict", "set", "module", "chain", "circle"])
def test_a_graph_that_leads_to_itself_many_times_is_exported_or_left_out_and_costs_little(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    last = 40 if kind != "chain" else 5_000
    nodes = [_node(kind, number, last) for number in range(last + 1)]
    document = dict.fromkeys(DOCUMENT) | {
        "modules": {"__main__": {"value": (0,), "plain": 7}}, "frames": [], "others": [[], []], "extra": [], "nodes": nodes,
        "described": [], "versions": (sys.version.split()[0], str(torch.__version__)),
    }  # fmt: skip
    descriptor = new_buffer()
    StateSlots(descriptor).write(3, [], [], packed(tuple(document.values())))
    StateSaving([descriptor], state_store(str(tmp_path / "state")), JOB).save()
    os.close(descriptor)
    assert main(["resume", "--export", str(tmp_path / "state"), "out.pt"]) == 0
    assert torch.load("out.pt", weights_only=True)["values"]["plain"] == 7


def _node(kind, number, last):
    below = (number + 1,)
    if number == last and kind == "module":
        return ("module", ["m:M", None, {}, {}, {}, {}])
    if number == last:
        return ("tuple", [None, [(0,) if kind == "circle" else 1]])
    match kind:
        case "dict":
            return ("dict", [None, [1, below, 2, below]])
        case "set":
            return ("frozenset", [below, below])
        case "module":
            return ("module", ["m:M", None, {}, {}, {"a": below, "b": below}, {}])
        case "chain":
            return ("list", [None, [below]])
    return ("list" if kind == "list" else "tuple", [None, [below, below]])


@needs_root
@pytest.mark.process
def test_the_state_of_another_user_is_exported_and_nothing_is_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "index"))
    saved_run(tmp_path / "runs")
    (tmp_path / "evil.py").write_text("open('imported', 'w')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    give_away(tmp_path / "runs/r-1", *(tmp_path / "runs/r-1").rglob("*"))
    assert main(["resume", "--export", str(tmp_path / "runs/r-1"), "out.pt"]) == 0
    assert torch.load("out.pt", weights_only=True)["step"] == 7 and not (tmp_path / "imported").exists()


def test_a_state_of_an_earlier_format_is_refused_by_its_name(world):
    for step in (6, 7):
        path = world / f"r-1/state/step-{step}/manifest.json"
        path.write_bytes(path.read_bytes().replace(b"paceline.saved_state/2", b"paceline.saved_state/1"))
    code, said = code_of_resume(world)
    assert code == "F05" and "step 7 is paceline.saved_state/1" in said


# ---------------------------------------------------------------------------------------------- what a recording may end


@pytest.fixture
def rank():
    """A process that says what ranks of an orphaned run say, and what it says."""
    said = {"RUN_ID": "r-1", "AGENT_PID": "4194000", "SOCKET_DIR": "/run/x", "MARK": "m" * 32}
    said = {f"PACELINE_{name}": value for name, value in said.items()}
    waits = [sys.executable, "-S", "-c", "import sys; print(flush=True); sys.stdin.read()"]
    process = subprocess.Popen(waits, env=said, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    # Its environment is there once it runs.
    process.stdout.readline()
    yield said
    process.kill()
    process.communicate()


def run_that_was_left(root, **more):
    run = root / "r-1"
    run.mkdir(parents=True)
    document = {
        "schema": "paceline.run/2", "run_id": "r-1", "agent_pid": 4194000, "agent_start_ticks": 1, "machine": os.uname().nodename,
        "boot_id": boot_id(), "pid_namespace": os.readlink("/proc/self/ns/pid"), "control_socket": "/run/x/c", "directory": str(run),
    }  # fmt: skip
    (run / "run.json").write_text(json.dumps(document | more))
    return run


def marks(run):
    facts, _, _ = read_run([RunDirectory(run)])
    return marks_of(run, facts, "/run/x")


def test_processes_that_say_that_they_are_of_a_run_are_its_own(tmp_path, rank):
    assert marks(run_that_was_left(tmp_path)) == {rank["PACELINE_MARK"]}


@pytest.mark.parametrize(
    "more", [{"run_id": "r-2"}, {"agent_pid": 4194001}, {"agent_pid": None}, {"directory": "/elsewhere/r-1"}, {"directory": None}], ids=str
)  # fmt: skip
def test_a_recording_that_is_not_quite_theirs_ends_nobody(tmp_path, rank, more):
    assert marks(run_that_was_left(tmp_path, **more)) == set()


@needs_root
@pytest.mark.parametrize("theirs", ["r-1", "r-1/run.json"])
def test_a_recording_of_another_user_ends_nobody(tmp_path, rank, theirs):
    run = run_that_was_left(tmp_path)
    give_away(tmp_path / theirs)
    assert marks(run) == set()
    with pytest.raises(UsageError) as refused:
        place_of("r-1", tmp_path, verb="paceline run --resume")
    assert refused.value.code == "U25"


def test_a_copy_of_a_recording_ends_nobody(tmp_path, rank):
    run = run_that_was_left(tmp_path)
    shutil.copytree(run, tmp_path / "copy/r-1")
    assert marks(tmp_path / "copy/r-1") == set() and start_ticks(os.getpid()) is not None


# --------------------------------------------------------------------------------------------- where a recording is written


@needs_root
@pytest.mark.parametrize("entry", ["directory", "link", "dangling"])
def test_a_directory_of_another_user_is_not_adopted(tmp_path, entry):
    path = tmp_path / "exp1"
    if entry == "directory":
        path.mkdir(mode=0o777)
    else:
        (tmp_path / "own").mkdir()
        path.symlink_to(tmp_path / ("own" if entry == "link" else "nowhere"))
    give_away(path)
    with pytest.raises(FileExistsError, match=f"#{SOMEBODY_ELSE}.*--set run_id") as refused:
        create_run(tmp_path, "exp1")
    assert refused.value.errno == errno.EEXIST and not (tmp_path / "own/run.json").exists()


def test_an_own_directory_that_is_there_is_used(tmp_path):
    (tmp_path / "exp1").mkdir()
    assert create_run(tmp_path, "exp1").path == tmp_path / "exp1"


def test_a_line_goes_through_no_link(tmp_path):
    secret, link = tmp_path / "secret", tmp_path / "events.jsonl"
    secret.write_text("mine")
    link.symlink_to(secret)
    lines = JsonLines(link)
    assert not lines.append({"event": "x"}) and lines.lost == 1
    with pytest.raises(OSError):
        append_whole_records(link, b"12345678", 8)
    store = state_store(str(tmp_path / "state"))
    (tmp_path / "state/step-1").mkdir(parents=True)
    (tmp_path / "state/step-1/.manifest.json.part").symlink_to(secret)
    store.write("step-1/manifest.json", [b"new"])
    (tmp_path / "state/step-2").symlink_to(tmp_path)
    with suppress(OSError):
        store.write("step-2/secret", [b"new"])
    assert secret.read_text() == "mine" and store.content("step-1/manifest.json") == b"new"


@needs_root
def test_a_look_at_another_users_run_writes_no_end_into_it(tmp_path):
    run = run_that_was_left(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("mine")
    (run / "events.jsonl").symlink_to(secret)
    ended = Observation.__new__(Observation)
    for theirs in (run, run / "events.jsonl"):
        give_away(theirs)
        note_end(run, ended)
    assert secret.read_text() == "mine"
