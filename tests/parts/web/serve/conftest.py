"""A folder of runs and the application over it."""

import pytest
from web_recordings import make_app, record


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder of runs with one run, which is all that can be found."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = tmp_path / "runs"
    record(root, "r-000001")
    return root


@pytest.fixture
def app(root):
    return make_app(root)
