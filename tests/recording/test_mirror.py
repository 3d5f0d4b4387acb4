"""A copy of a recording that grows is the recording."""

import io
import json

from paceline.recording.mirror import apply, changes, known_after, main
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
    source.mkdir()
    segment = source / "rank_0.seg"
    segment.write_bytes(b"h" * HEADER_BYTES + b"r" * 64)
    known = bring(source, copy, {})
    segment.write_bytes(b"H" * HEADER_BYTES + b"r" * 64 + b"s" * 64)
    bring(source, copy, known)
    assert files(copy) == files(source)


def test_the_contracts_tree_and_links_stay_where_they_are(tmp_path):
    source = tmp_path / "there"
    (source / "hosts" / "algo-1" / "ml" / "model").mkdir(parents=True)
    (source / "hosts" / "algo-1" / "ml" / "model" / "weights.bin").write_bytes(b"0" * 100)
    (source / "link").symlink_to("/etc/passwd")
    assert changes(source, {})[1] == {}


def test_a_recording_that_is_not_there_yet_has_no_changes(tmp_path):
    assert changes(tmp_path / "nothing", {})[1] == {}


def test_a_name_that_leads_out_is_not_written(tmp_path):
    import tarfile

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
