import sys

import pytest

from paceline.probes.torch_version import ASK_WITH, FEATURES, read_torch, read_torch_features


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
@pytest.mark.parametrize(("handlers", "shown"), [(["fr_trace_json"], True), (["dump_nccl_trace_json", "ping"], False)])
def test_a_recorder_counts_only_where_the_worker_server_gives_its_record_out(tmp_path, monkeypatch, handlers, shown):
    package = tmp_path / "torch"
    (package / "_C").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "class version: cuda = None\n__version__ = '2.8.0'\ndef ones(n): return [1.0] * n\n"
    )
    (package / "_C" / "__init__.py").touch()
    (package / "_C" / "_distributed_c10d.py").write_text(f"HANDLERS = {handlers!r}\n{STAND_IN}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = read_torch_features(sys.executable).features
    assert (found["flight recorder"], found["flight recorder of gloo"]) == (True, shown)
