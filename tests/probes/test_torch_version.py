import sys

import pytest
from torchrun_grammar import grammar, numbers

from paceline.probes.torch_version import ASK_WITH, FEATURES, TRIED, not_tried, read_torch, read_torch_features


def test_the_version_comes_from_metadata_and_features_are_not_judged():
    found = read_torch()
    assert found.features is None
    assert found.features_reason
    assert (found.version is None) == bool(found.reason)
    if found.version:
        assert found.features_reason == ASK_WITH


def test_an_interpreter_that_is_not_there_is_a_reason():
    found = read_torch("/no/such/python")
    assert (found.version, found.python_version) == (None, None)
    assert found.reason == "/no/such/python: No such file or directory"
    assert read_torch_features("/no/such/python").features is None


@pytest.mark.process
def test_another_interpreter_answers_for_itself(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -E -S "$@"\n')
    bare.chmod(0o755)
    found = read_torch(str(bare))
    assert found.python_version == ".".join(str(part) for part in sys.version_info[:3])
    assert (found.version, found.reason) == (None, f"torch is not installed for {bare}")


@pytest.mark.process
def test_a_program_that_is_no_python_is_a_reason():
    assert read_torch("/bin/true").reason == "/bin/true is no Python: it answered ''"
    assert read_torch_features("/bin/true").features is None


@pytest.mark.process
def test_every_feature_of_a_supported_torch_is_found():
    pytest.importorskip("torch")
    found = read_torch_features(sys.executable)
    assert set(found.features) == set(FEATURES)
    missing = {name for name, there in found.features.items() if not there}
    assert missing <= {"nccl", "flight recorder", "flight recorder of gloo", "worker server"}


STAND_IN = """
class HashStore: pass
class ProcessGroupGloo:
    def __init__(self, *_): pass
    def allreduce(self, _): return self
    def wait(self): pass
def _dump_fr_trace_json(): return '{"entries": [1]}'
def _dump_nccl_trace_json(): return '{"entries": []}'
def _get_handler_names(): return HANDLERS
"""


@pytest.mark.slow_but_first
@pytest.mark.process
@pytest.mark.parametrize(
    ("handlers", "has_nccl", "nccl", "gloo"),
    [
        (["fr_trace_json"], True, False, True),
        (["dump_nccl_trace_json", "ping"], True, True, False),
        (["dump_nccl_trace_pickle"], True, True, False),
        (["fr_trace_json", "dump_nccl_trace_json"], True, True, True),
        # torch 2.15: a recorder for each backend, behind one question.
        (["fr_trace_json", "fr_dump_file"], True, True, True),
        (["fr_trace_json", "fr_dump_file"], False, False, True),
        (["ping"], True, False, False),
    ],
)
def test_a_recorder_counts_only_where_the_worker_server_gives_its_record_out(
    tmp_path, monkeypatch, handlers, has_nccl, nccl, gloo
):
    package = tmp_path / "torch"
    (package / "_C").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "class version: cuda = None\n__version__ = '2.8.0'\ndef ones(n): return [1.0] * n\n"
        f"class distributed: is_nccl_available = staticmethod(lambda: {has_nccl})\n"
    )
    (package / "_C" / "__init__.py").touch()
    (package / "_C" / "_distributed_c10d.py").write_text(f"HANDLERS = {handlers!r}\n{STAND_IN}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = read_torch_features(sys.executable).features
    assert (found["flight recorder"], found["flight recorder of gloo"]) == (nccl, gloo)


@pytest.mark.parametrize(
    "version",
    [
        "2.4.1",
        "2.5",
        "2.10.0+cu128",
        "2.13.0+cpu",
        "2.14.1",
        "2.15.0+cu132",
        "2.15.3",
        "2.8.0+rocm6.4",
        "2.7.0.post1",
        None,
    ],
)
def test_a_release_that_was_tried_needs_no_word(version):
    assert not_tried(version) == ""


@pytest.mark.parametrize("version", ["2.16.0", "2.16.0+cu140", "3.0.0", "2.3.1", "1.13.1"])
def test_a_release_that_nobody_has_tried_is_named(version):
    assert not_tried(version).startswith(f"torch {version} was never tried")


@pytest.mark.parametrize(
    "version",
    [
        "2.15.0.dev20261120+cu132",
        "2.16.0a0+git1f2e3d4",
        "2.13.0a0+5228986c39.nv26.08",
        "2.15.0rc1",
        "2.15.0+gitabc",
        "main",
        "",
    ],
)
def test_a_build_between_releases_is_named_as_one(version):
    assert f"torch {version}, which is no release, was never tried" in not_tried(version)


def test_what_counts_as_tried_are_the_releases_whose_torchrun_was_read():
    releases = grammar()["releases"]
    assert (numbers(releases[0]), numbers(releases[-1])) == TRIED
