"""A copy of a recording that grows is the recording."""

import gzip
import io
import json
import tarfile

import pytest

from paceline.recording.mirror import MOST_UNPACKED_BYTES, apply, changes, known_after, main
from paceline.recording.ring import HEADER_BYTES


def files(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def bring(source, copy, known):
    piece, now = changes(source, known)
    assert known_after(piece, known) == now
    apply(copy, piece)
    return now


def test_what_grows_is_brought_once(tmp_path):
    source, copy = tmp_path / "there", tmp_path / "here"
    log = source / "hosts" / "algo-1" / "attempt_0" / "rank_0.out"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"one\n" * 1000)
    (source / "run.json").write_text("{}")
    known = bring(source, copy, {})
    with log.open("ab") as file:
        file.write(b"two\n")
    piece, _ = changes(source, known)
    assert len(piece) < 400
    known = bring(source, copy, known)
    assert files(copy) == files(source)
    assert changes(source, known)[1] == known


def test_a_file_that_is_replaced_is_brought_whole(tmp_path):
    source, copy = tmp_path / "there", tmp_path / "here"
    source.mkdir()
    (source / "run.json").write_text('{"a": 1}')
    known = bring(source, copy, {})
    (source / "run.json").write_text("{}")
    bring(source, copy, known)
    assert files(copy) == files(source)


def test_the_header_of_a_segment_follows_its_records(tmp_path):
    source, copy = tmp_path / "there", tmp_path / "here"
    segment = source / "hosts" / "algo-1" / "attempt_0" / "rank_0.seg"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"h" * HEADER_BYTES + b"r" * 64)
    known = bring(source, copy, {})
    segment.write_bytes(b"H" * HEADER_BYTES + b"r" * 64 + b"s" * 64)
    bring(source, copy, known)
    assert files(copy) == files(source)


def test_the_contracts_tree_and_links_stay_where_they_are(tmp_path):
    source = tmp_path / "there"
    (source / "hosts" / "algo-1" / "ml" / "model").mkdir(parents=True)
    (source / "hosts" / "algo-1" / "ml" / "model" / "weights.bin").write_bytes(b"0" * 100)
    (source / "state" / "step-3").mkdir(parents=True)
    (source / "state" / "step-3" / "manifest.json").write_bytes(b"0" * 100)
    (source / "link").symlink_to("/etc/passwd")
    assert changes(source, {})[1] == {}


def test_a_recording_that_is_not_there_yet_has_no_changes(tmp_path):
    assert changes(tmp_path / "nothing", {})[1] == {}


def test_a_name_that_leads_out_is_not_written(tmp_path):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("../out")
        member.pax_headers = {"paceline.from": "0", "paceline.changed_ns": "0", "paceline.head": "0"}
        archive.addfile(member, io.BytesIO(b""))
    apply(tmp_path / "copy", raw.getvalue())
    assert not (tmp_path / "out").exists()


def test_the_program_answers_each_line_with_a_length_and_a_piece(tmp_path):
    source, copy = tmp_path / "there", tmp_path / "here"
    source.mkdir()
    (source / "events.jsonl").write_text("{}\n")
    answer = io.BytesIO()
    assert main([str(source)], io.StringIO(json.dumps({}) + "\n"), answer) == 0
    length = int.from_bytes(answer.getvalue()[:8], "big")
    assert len(answer.getvalue()) == 8 + length
    apply(copy, answer.getvalue()[8:])
    assert files(copy) == files(source)


FROM_THE_START = {"paceline.from": "0", "paceline.changed_ns": "0", "paceline.head": "0"}


def piece_of(name, content=b"", headers=FROM_THE_START, **fields):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo(name)
        member.size, member.pax_headers = len(content), dict(headers)
        for field, value in fields.items():
            setattr(member, field, value)
        archive.addfile(member, io.BytesIO(content))
    return raw.getvalue()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_what_is_no_file_is_passed_over(tmp_path, kind):
    piece = piece_of("hosts/algo-1/rank_0.out", type=kind, linkname="/etc/passwd")
    apply(tmp_path / "copy", piece)
    assert known_after(piece, {}) == {}
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("name", ["hosts/../../out/rank_0.out", "hosts/algo-1/../../../out"])
def test_a_name_that_leads_out_below_the_folder_of_hosts_is_not_written(tmp_path, name):
    apply(tmp_path / "copy", piece_of(name, b"{}"))
    assert list(tmp_path.iterdir()) == []


def test_what_a_file_grows_by_is_not_written_through_a_link(tmp_path):
    secret, log = tmp_path / "secret", tmp_path / "copy/hosts/algo-1/rank_0.out"
    secret.write_bytes(b"before")
    log.parent.mkdir(parents=True)
    log.symlink_to(secret)
    with pytest.raises(OSError):
        apply(
            tmp_path / "copy", piece_of("hosts/algo-1/rank_0.out", b"after", {**FROM_THE_START, "paceline.from": "1"})
        )
    assert secret.read_bytes() == b"before"


@pytest.mark.parametrize("name", ["submission.json", "request.json", "code.tar.gz", "slurm/agent.sh", "hosts", "x\\0y"])
def test_a_host_writes_its_recording_and_nothing_else(tmp_path, name):
    apply(tmp_path / "copy", piece_of(name, b"{}"))
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    "piece",
    [
        b"",
        b"no gzip",
        gzip.compress(b"no tar" * 200),
        gzip.compress(bytes(MOST_UNPACKED_BYTES + 1), 1),
        piece_of("run.json", headers={}),
        piece_of("run.json", headers={**FROM_THE_START, "paceline.from": "many"}),
        piece_of("run.json", headers={**FROM_THE_START, "paceline.from": "-1"}),
        piece_of("run.json", headers={**FROM_THE_START, "paceline.head": "9"}),
        piece_of("run.json", b"{}")[:-20],
    ],
    ids=["empty", "no_gzip", "no_tar", "bomb", "no_headers", "no_number", "before_0", "long_head", "cut"],
)
def test_a_piece_that_is_none_is_refused_whole(tmp_path, piece):
    for take in (lambda: apply(tmp_path / "copy", piece), lambda: known_after(piece, {})):
        with pytest.raises(ValueError):
            take()
    assert not (tmp_path / "copy").exists()


def test_a_file_does_not_go_on_behind_its_end(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(b"{}\n")
    with pytest.raises(ValueError):
        apply(tmp_path, piece_of("events.jsonl", b"{}\n", {**FROM_THE_START, "paceline.from": str(1 << 40)}))
    assert (tmp_path / "events.jsonl").read_bytes() == b"{}\n"


def test_a_piece_that_was_made_can_be_taken_however_well_it_packs(tmp_path):
    source, copy = tmp_path / "there", tmp_path / "here"
    attempt = source / "hosts" / "algo-1" / "attempt_0"
    attempt.mkdir(parents=True)
    for rank in range(4):
        with (attempt / f"rank_{rank}.out").open("wb") as log:
            log.truncate(30 << 20)
    known, before = {}, None
    while known != before:
        before, known = known, bring(source, copy, known)
    assert {file: len(content) for file, content in files(copy).items()} == {
        file: len(content) for file, content in files(source).items()
    }
