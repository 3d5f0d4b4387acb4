"""A rank of a job with `--resume auto` is killed: each line is on the terminal once, and the logs have what each attempt wrote."""

import pytest
from summing_job import KILL, RANK, done, ran

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

# Lines that say neither the attempt nor anything else that differs when a step is made again, without a flush.
PRINTS = """    print(f"plain {rank} step {number} of {int(total)}")
    print(f"wrote {rank} step {number}", file=sys.stderr)
    print(f"\\r{rank}: {number}/8", end="" if number < 8 else "\\n", file=sys.stderr)
"""
ONE = "    number = int(batch) % 100\n"
TEXT = RANK.replace(ONE, ONE + PRINTS, 1).replace(
    "total, held = 0, []", "total, held = 0, []\nprint('model is made')", 1
)
SUMS = [sum(range(step)) for step in range(1, 9)]


def plain(rank):
    return [f"plain {rank} step {step} of {total}" for step, total in zip(range(1, 9), SUMS, strict=True)]


def of(text, rank):
    """Lines of a rank's steps, without the prefix that names the rank."""
    lines = [line[line.find("plain ") :] for line in text.splitlines() if "plain " in line]
    return [line for line in lines if line.startswith(f"plain {rank} ")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deaths", "ranks"),
    [pytest.param(1, 2, marks=pytest.mark.wide), (1, 3), pytest.param(2, 2, marks=pytest.mark.wide), (2, 3)],
)
def test_every_line_of_every_step_is_on_the_terminal_once_and_in_the_log_of_each_attempt(paceline, ranks, deaths):
    dies = [(0, 0, 6, KILL), (1, ranks - 1, 7, KILL)][:deaths]
    finished, lines = ran(paceline, "--nproc-per-node", str(ranks), text=TEXT, dies=dies)
    assert done(lines) == [36] * ranks
    for rank in range(ranks):
        assert of(finished.out, rank) == plain(rank)
        for step in range(1, 9):
            assert finished.err.count(f"wrote {rank} step {step}\n") == 1
        # The bar is redrawn, so a piece of it may be there twice. Its end is not lost.
        assert f"{rank}: 8/8" in finished.err
    assert finished.out.count("model is made") == ranks
    assert "paceline kept" not in finished.out + finished.err and "\x00" not in finished.out + finished.err
    logs = [
        path.read_text()
        for path in paceline.directory.glob("**/hosts/*/attempt_*/rank_*.*")
        if path.suffix in (".out", ".err")
    ]
    assert len(logs) == 2 * ranks * (deaths + 1) and all("\x00" not in log for log in logs)
    assert sum("model is made" in log for log in logs) == ranks * (deaths + 1)


DIFFERENT = TEXT.replace(ONE, ONE + '    print(f"attempt {attempt()} of rank {rank} in step {number}")\n', 1)


@pytest.mark.slow
def test_a_line_that_is_different_when_its_step_is_made_again_is_shown(paceline):
    finished, _ = ran(paceline, "--nproc-per-node", "2", text=DIFFERENT, dies=[(0, 1, 6, KILL)])
    for rank in (0, 1):
        shown = [line for line in finished.out.splitlines() if f"of rank {rank} in step" in line]
        assert [line for line in shown if "attempt 1" in line and "step 6" in line], shown
        assert len(shown) == len(set(shown)) and {line[-1] for line in shown} == set("12345678")
        assert of(finished.out, rank) == plain(rank)


@pytest.mark.slow
def test_output_of_a_fork_servers_ranks_appears_once(paceline):
    finished, lines = ran(
        paceline, "--nproc-per-node", "2", text=TEXT, dies=[(0, 0, 6, KILL)], server="auto", waits=True
    )
    assert done(lines) == [36, 36] and [of(finished.out, rank) for rank in (0, 1)] == [plain(0), plain(1)]


BYTES = b"".join(bytes([number]) for number in range(256)) + b"\r 50%\x1e\x00paceline kept 1\n\xff no end"
WRITES = ONE + f"    os.write(1, {BYTES!r})\n    os.write(2, {BYTES!r})\n"


def test_without_a_kill_each_byte_that_a_rank_writes_is_in_its_log(paceline):
    script = paceline.script(
        "train.py", TEXT.replace(ONE + PRINTS, WRITES, 1).replace("print(json", "0 and print(json")
    )
    for resume in ("auto", "off"):
        job = paceline.start("run", "--resume", resume, "--fork-server", "off", script, '{"dies": []}')
        assert job.process.wait(120) == 0
    logs = sorted(paceline.directory.glob("**/hosts/*/attempt_0/rank_0.*"))
    logs = [path.read_bytes() for path in logs if path.suffix in (".out", ".err")]
    assert len(logs) == 4 and sum(log == b"model is made\n" + 8 * BYTES for log in logs) == 2, logs
    assert sum(log == 8 * BYTES for log in logs) == 2, logs
