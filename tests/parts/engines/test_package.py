"""What is shipped, what is left out, and what is refused."""

import tarfile

import pytest

from paceline.errors import UsageError
from paceline.parts.engines.package import package, unpack


@pytest.fixture
def code(tmp_path):
    directory = tmp_path / "code"
    (directory / "pkg").mkdir(parents=True)
    (directory / "train.py").write_text("print(1)\n")
    (directory / "pkg" / "model.py").write_text("x = 1\n")
    (directory / "pkg" / "__pycache__").mkdir()
    (directory / "pkg" / "__pycache__" / "model.pyc").write_bytes(b"0")
    return directory


def names(archive):
    with tarfile.open(archive) as tar:
        return sorted(tar.getnames())


def test_what_every_project_leaves_lying_is_not_shipped(code, tmp_path):
    made = package(code, tmp_path / "code.tar.gz")
    assert names(made.archive) == ["pkg/model.py", "train.py"]
    assert (made.file_count, made.size_bytes) == (2, 15)


def test_patterns_of_the_file_and_of_the_command_line_are_left_out(code, tmp_path):
    (code / "data").mkdir()
    (code / "data" / "huge.bin").write_bytes(b"0")
    (code / "notes.txt").write_text("")
    (code / ".pacelineignore").write_text("# data goes into a channel\ndata/\n")
    made = package(code, tmp_path / "code.tar.gz", ignore=["*.txt"])
    assert names(made.archive) == [".pacelineignore", "pkg/model.py", "train.py"]


def test_the_same_files_have_the_same_digest_whenever_they_were_written(code, tmp_path):
    first = package(code, tmp_path / "a.tar.gz")
    (code / "train.py").write_text("print(1)\n")
    second = package(code, tmp_path / "b.tar.gz")
    assert first.digest == second.digest
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    (code / "train.py").write_text("print(2)\n")
    assert package(code, tmp_path / "c.tar.gz").digest != first.digest


def test_code_that_is_data_is_refused_with_the_line_to_write(code, tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.parts.engines.package.MOST_BYTES", 10)
    with pytest.raises(UsageError) as refused:
        package(code, tmp_path / "code.tar.gz")
    assert refused.value.code == "E02"
    assert "train.py" in refused.value.saw
    assert refused.value.next.startswith("echo 'train.py' >> ")


def test_a_link_that_leads_out_is_refused(code, tmp_path):
    (tmp_path / "secret").write_text("key")
    (code / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match="cannot be shipped") as refused:
        package(code, tmp_path / "code.tar.gz")
    assert "outside" in refused.value.saw


def test_unpacked_code_is_what_was_packed_and_stays(code, tmp_path):
    made = package(code, tmp_path / "code.tar.gz")
    target = tmp_path / "there"
    unpack(tmp_path / "code.tar.gz", target)
    assert (target / "train.py").read_text() == "print(1)\n"
    (target / "train.py").write_text("changed")
    unpack(tmp_path / "code.tar.gz", target)
    assert (target / "train.py").read_text() == "changed"
    assert made.commit is None and made.dirty == ()


def test_the_commit_and_what_differs_from_it_are_noted(code, tmp_path, git):
    commit = git(code)
    (code / "train.py").write_text("print(3)\n")
    (code / "new.py").write_text("")
    made = package(code, tmp_path / "code.tar.gz")
    assert made.commit == commit
    assert sorted(made.dirty) == ["new.py", "train.py"]


@pytest.fixture
def git():
    import subprocess

    def commit(directory):
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        (directory / ".gitignore").write_text("__pycache__/\n")
        for argv in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "first")):
            subprocess.run(["git", "-C", str(directory), *argv], check=True)
        head = ["git", "-C", str(directory), "rev-parse", "HEAD"]
        return subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()

    return commit


def test_packing_says_how_far_it_is(tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    for name, size in (("a.py", 10), ("b.py", 30)):
        (code / name).write_bytes(b"x" * size)
    told = []
    package(code, tmp_path / "code.tar.gz", packed=lambda *bytes: told.append(bytes))
    assert told == [(10, 40), (40, 40)]
