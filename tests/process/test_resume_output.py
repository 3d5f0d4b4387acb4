"""Output of a job with `--resume auto`: nothing of a kept step is lost with its process, and each byte is passed on as it came."""

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deaths", "ranks", "server"),
    [(1, 2, "auto"), pytest.param(2, 2, "off", marks=pytest.mark.wide), (2, 3, "off")],
)
def test_no_line_of_a_kept_step_is_lost_with_its_process(paceline, ranks, deaths, server):
    dies = [(0, 0, 6, KILL), (1, ranks - 1, 7, KILL)][:deaths]
    waits = {"waits": True} if server == "auto" else {}
    finished, lines = ran(paceline, "--nproc-per-node", str(ranks), text=TEXT, dies=dies, server=server, **waits)
    assert done(lines) == [36] * ranks
    for rank in range(ranks):
        for step, total in enumerate(SUMS, 1):
            # Again only where the step was made again, which is the one after the kept one.
            shown = 1 if step < 6 else deaths + 1
            assert 1 <= finished.out.count(f"plain {rank} step {step} of {total}\n") <= shown
            assert 1 <= finished.err.count(f"wrote {rank} step {step}\n") <= shown
        assert f"{rank}: 8/8" in finished.err
    logs = list(paceline.directory.glob("**/hosts/*/attempt_*/rank_*.out"))
    assert len(logs) == ranks * (deaths + 1) and all("model is made" in log.read_text() for log in logs)


BYTES = b"".join(bytes([number]) for number in range(256)) + b"\r 50%\n\xff no end"
WRITES = ONE + f"    os.write(1, {BYTES!r})\n    os.write(2, {BYTES!r})\n"


def test_without_a_kill_each_byte_that_a_rank_writes_is_in_its_log(paceline):
    script = paceline.script(
        "train.py", TEXT.replace(ONE + PRINTS, WRITES, 1).replace("print(json", "0 and print(json")
    )
    for resume in ("auto", "off"):
        job = paceline.start("run", "--resume", resume, "--set", "fork_server=off", script, '{"dies": []}')
        assert job.process.wait(120) == 0
    logs = sorted(paceline.directory.glob("**/hosts/*/attempt_0/rank_0.*"))
    logs = [path.read_bytes() for path in logs if path.suffix in (".out", ".err")]
    assert len(logs) == 4 and sum(log == b"model is made\n" + 8 * BYTES for log in logs) == 2, logs
    assert sum(log == 8 * BYTES for log in logs) == 2, logs
