"""A host's recording is brought here through whatever answers on its side, with a shell of this machine in SSH's place."""

import asyncio
import shlex
import sys

import pytest

from paceline.parts.engines.ssh.mirror import Copy


class Shell:
    """A connection to this machine. `instead`: what answers in place of the program that sends pieces."""

    host, alive = "b", True

    def __init__(self, instead=None, greeting="true"):
        self.found = {"executable": sys.executable}
        self.instead, self.greeting = instead, greeting

    async def start(self, command, **streams):
        said = command if self.instead is None else f"{command.partition(' && ')[0]} && {self.instead}"
        return await asyncio.create_subprocess_shell(f"{self.greeting}; {said}", **streams)


@pytest.fixture
def there(tmp_path):
    directory = tmp_path / "there"
    (directory / "hosts/b").mkdir(parents=True)
    (directory / "hosts/b/telemetry.jsonl").write_text("{}\n")
    return directory


def bring(connection, there, here):
    copy = Copy(connection, str(there), here)
    asyncio.run(copy.once())
    return copy


def test_what_is_there_comes_here_whatever_a_login_script_prints(there, tmp_path):
    bring(Shell(greeting="echo welcome; echo 'paceline> record'"), there, tmp_path / "here")
    assert (tmp_path / "here/hosts/b/telemetry.jsonl").read_text() == "{}\n"


ANSWERS = {
    "too_long": "printf '\\377\\0\\0\\0\\0\\0\\0\\0'",
    "no_archive": "printf '\\0\\0\\0\\0\\0\\0\\0\\4abcd'",
    "a_line_without_end": "true",
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_that_is_none_is_said_once_and_nothing_is_written(there, tmp_path, kind, capfd):
    greeting = f"{shlex.quote(sys.executable)} -c \"print('x' * 100000)\"" if kind == "a_line_without_end" else "true"
    copy = bring(Shell(ANSWERS[kind], greeting), there, tmp_path / "here")
    asyncio.run(copy.once())
    assert capfd.readouterr().err.count("the recording of b is not brought here any more") == 1
    assert not (tmp_path / "here").exists()


def test_a_host_that_hangs_up_is_silent(there, tmp_path, capfd):
    bring(Shell("printf '\\0\\0\\0'"), there, tmp_path / "here")
    assert capfd.readouterr().err == "" and not (tmp_path / "here").exists()


def test_a_disk_that_is_full_is_said_and_tried_again(there, tmp_path, capfd):
    here = tmp_path / "here"
    here.write_text("a file in the way")
    copy = Copy(Shell(), str(there), here)

    async def twice():
        await copy._round()
        here.unlink()
        await copy.once()

    asyncio.run(twice())
    assert "cannot be brought to" in capfd.readouterr().err
    assert (here / "hosts/b/telemetry.jsonl").read_text() == "{}\n"
