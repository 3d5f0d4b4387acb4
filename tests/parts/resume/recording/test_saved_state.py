"""The manifest of a saved step."""

import pytest

from paceline.parts.resume.recording.saved_state import (
    JobFacts,
    Manifest,
    NoManifest,
    SavedFile,
    SavedRank,
    folder_of,
    manifest_text,
    newest_saved_step,
    parse_manifest,
    step_of,
)

RANK = SavedRank(SavedFile("a.safetensors", 12, "ab"), SavedFile("a.msgpack", 3, "cd"), None)
JOB = JobFacts(run_id="r-1", script="/t.py", script_sha256="00", hash_seed="7")
MANIFEST = Manifest(step=9, saved_ns=1, job=JOB, python="3.11.9", torch="2.13.0+cpu", ranks=(RANK, RANK))


def test_a_manifest_comes_back_as_it_was_written():
    assert parse_manifest(manifest_text(MANIFEST)) == MANIFEST
    assert MANIFEST.world_size == 2 and len(MANIFEST.files) == 4


def test_no_cut_and_no_flipped_byte_of_a_manifest_is_taken_for_a_manifest():
    text = manifest_text(MANIFEST)
    for place in range(len(text) - 1):
        with pytest.raises(NoManifest):
            parse_manifest(text[:place])
        changed = bytearray(text)
        changed[place] ^= 1
        try:
            assert parse_manifest(bytes(changed)) == MANIFEST
        except NoManifest:
            pass


def test_a_manifest_of_another_version_is_refused_by_its_name():
    other = manifest_text(MANIFEST).replace(b"saved_state/2", b"saved_state/1")
    with pytest.raises(NoManifest, match="another version"):
        parse_manifest(other)


@pytest.mark.parametrize(
    "name", ["step-0", "step-", "step-1x", "step--1", "step-01", "x-step-1", "step-99999999999999999999"]
)
def test_a_directory_of_another_name_is_no_step(name):
    assert step_of(name) is None and step_of(folder_of(12)) == 12


def test_the_newest_step_that_a_run_saved_beside_its_recording(tmp_path):
    assert newest_saved_step(tmp_path) is None
    for folder, has_manifest in (("step-30", True), ("step-200", True), ("step-900", False), ("step-x", True)):
        (tmp_path / "state" / folder).mkdir(parents=True)
        if has_manifest:
            (tmp_path / "state" / folder / "manifest.json").write_text("{}")
    assert newest_saved_step(tmp_path) == 200
