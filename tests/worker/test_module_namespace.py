"""The names of modules, read without importing what was left to be imported later."""

import importlib.util
import sys
import types

import pytest

from paceline.worker import exit_code, rendezvous_identity
from paceline.worker.module_namespace import namespace_of


@pytest.fixture
def lazy(tmp_path, monkeypatch):
    """A module that LazyLoader put into sys.modules; it says in its namespace that it was imported."""
    file = tmp_path / "late_module.py"
    file.write_text("imported = True\n")
    spec = importlib.util.spec_from_file_location("late_module", file)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "late_module", module)
    spec.loader.exec_module(module)
    return module


def was_imported(module):
    return "imported" in namespace_of(module)


def test_a_module_has_its_own_names_and_what_is_none_has_none():
    module = types.ModuleType("some")
    module.one = 1
    assert namespace_of(module) is module.__dict__ and namespace_of(module)["one"] == 1
    assert namespace_of(None) == {}


def test_a_look_at_the_names_imports_nothing_and_the_first_use_does(lazy):
    assert namespace_of(lazy)["__file__"].endswith("late_module.py") and not was_imported(lazy)
    assert lazy.imported and was_imported(lazy)


def test_what_a_rank_brings_to_its_rendezvous_imports_nothing(lazy):
    assert rendezvous_identity.identity({}, 0, 2) and not was_imported(lazy)


def test_the_wrapper_of_sys_exit_imports_nothing(lazy, monkeypatch):
    monkeypatch.setattr(sys, "exit", sys.exit)
    early = types.ModuleType("early")
    early.exit = sys.exit
    monkeypatch.setitem(sys.modules, "early", early)
    exit_code.watch(lambda: 0)
    assert early.exit is sys.exit and not was_imported(lazy)
