"""Where a verb writes what the user named: whole or not at all, and never in place of a device."""

import os
import threading

import pytest

from paceline.cli.output_file import write_output
from paceline.errors import UsageError


def test_a_file_is_written_through_a_link_and_named(tmp_path, capsys):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_output(str(tmp_path / "link"), b"new", "next")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"
    assert capsys.readouterr().out == f"{tmp_path / 'link'}\n"


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_output(str(pipe), b"content", "next")
    reader.join(30)
    assert got == [b"content"] and pipe.is_fifo()


@pytest.mark.parametrize("name", ["nowhere/file", "."])
def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refused:
        write_output(name, b"", "paceline report")
    assert refused.value.code == "U22" and list(tmp_path.iterdir()) == []


def test_standard_output_gets_the_bytes_alone(capsysbinary):
    write_output("-", b"\x00\xff", "next")
    assert capsysbinary.readouterr().out == b"\x00\xff"
