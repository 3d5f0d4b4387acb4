"""An option that no verb has: the nearest one where one is near, else what the words mean, and never nonsense."""

import pytest

from paceline.cli import main


@pytest.mark.parametrize(
    ("words", "next"),
    [
        ("run --lr 0.1 hi.py", "paceline run hi.py --lr 0.1"),
        ("run --lr=0.1 --nproc-per-node 2 hi.py --wd 1", "paceline run --nproc-per-node 2 hi.py --wd 1 --lr=0.1"),
        ("run --verbose hi.py", "paceline run hi.py --verbose"),
        ("run --no-web hi.py", "leave --no-web out"),
        ("run --nproc_pernode 2 hi.py", "paceline run --nproc_per_node 2 hi.py"),
        ("run --maxrestarts 2 hi.py", "paceline run --max-restarts 2 hi.py"),
        ("run --env FOO=1 hi.py", "FOO=VALUE in front of the command, in place of --env"),
        ("run --hp lr:0.1 hi.py", "paceline run --hp lr=0.1 hi.py"),
        ("run --signals-to-handle SIGKILL hi.py", "paceline run --signals-to-handle SIGTERM hi.py"),
        ("run --on-hang restart hi.py", "paceline run --on-hang restart --max-restarts 1 hi.py"),
        ("run --nnodes 2 --node-rank 2 hi.py", "paceline run --nnodes 2 --node-rank 1 hi.py"),
        ("run --nproc-per-node 100000 hi.py", "paceline run --nproc-per-node cpu hi.py"),
    ],
)
def test_what_is_typed_next_is_meant(monkeypatch, tmp_path, capsys, words, next):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hi.py").write_text("print(1)\n")
    assert main(words.split()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert f"  next      {next}" in lines, lines
