"""Whatever once broke one of the doors to strangers, tried again; and that the search itself finds what is broken."""

from pathlib import Path

import pytest
from fuzz import holds, main
from hypothesis import strategies as st
from targets import TARGETS, Target

CORPUS = Path(__file__).parent / "corpus"
KEPT = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_once_broke_it_does_so_no_more(path):
    TARGETS[path.parent.name].check(path.read_bytes())


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_each_target_takes_nothing_at_all(name):
    TARGETS[name].check(b"")


def test_a_target_whose_library_is_not_installed_is_said_to_be_untried(monkeypatch, capsys):
    monkeypatch.setitem(TARGETS, "elsewhere", Target(st.binary(), check=len, needs="no_such_module"))
    monkeypatch.setattr("sys.argv", ["fuzz.py", "--only", "elsewhere", "--seconds", "0"])
    assert main() == 0
    assert "elsewhere: not tried, no_such_module is not installed" in capsys.readouterr().out


def test_what_breaks_a_target_is_found_made_small_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fuzz.CORPUS", tmp_path)

    def check(data):
        assert b"x" not in data

    assert not holds("broken", Target(st.text(alphabet="abx").map(str.encode), check), 30.0)
    (kept,) = (tmp_path / "broken").iterdir()
    assert kept.read_bytes() == b"x" and str(kept) in capsys.readouterr().out
