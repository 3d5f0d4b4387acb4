"""Which stream of which rank goes where."""

from pathlib import Path

from paceline.facts import Console
from paceline.launch.agent.worker_spec import destinations
from paceline.recording.layout import RunDirectory

RUN = RunDirectory(Path("/runs/r-1"))


def both(console: Console, local_rank: int = 0):
    return destinations(console, RUN, "h", 0, 4 + local_rank, local_rank, "default", "job", "node-7")


def test_by_default_everything_is_shown_and_logged():
    out, err = both(Console())
    assert (out.console_fd, err.console_fd) == (1, 2) and out.prefix == b""
    assert out.log_file == Path("/runs/r-1/hosts/h/attempt_0/rank_4.out")


def test_a_redirected_stream_is_logged_and_not_shown():
    out, err = both(Console(redirects={-1: 1}))
    assert (out.console_fd, err.console_fd) == (None, 2)


def test_a_teed_stream_is_shown_with_torchruns_prefix():
    out, _ = both(Console(tee={1: 3}, redirects={-1: 3}), local_rank=1)
    assert (out.console_fd, out.prefix) == (1, b"[default1]:")


def test_the_prefix_follows_torchelastics_template():
    console = Console(tee={-1: 1}, line_prefix_template="[${role_name}/${rank}/${local_rank}/${hostname}/${other}] ")
    assert both(console, local_rank=1)[0].prefix == b"[default/5/1/node-7/${other}] "


def test_a_log_directory_gets_torchruns_files_for_what_was_asked():
    out, err = both(Console(redirects={0: 1}, log_dir="/logs"))
    assert out.extra_file == Path("/logs/job/attempt_0/0/stdout.log") and err.extra_file is None


def test_filters_copy_to_a_file_of_their_own():
    out, err = both(Console(stdout_filters=("loss",)))
    assert out.filtered_file == Path("/runs/r-1/hosts/h/attempt_0/filtered_stdout.log") and err.filtered_file is None
