"""The tuner and the renewal of a module, on real ranks: one start of two ranks runs all cases of tuner_cases.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patient
from ports import free_port

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.timeout(120)]

PROGRAM = Path(__file__).parents[1] / "tuner_cases.py"
NAMES = [
    line[4:].partition("(")[0] for line in PROGRAM.read_text().split("@case\n")[1:] for line in line.splitlines()[:1]
]


@pytest.fixture(scope="module")
def results(tmp_path_factory, make_user_environment):
    directory = tmp_path_factory.mktemp("tuner")
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "error", str(PROGRAM), str(directory)],
            env=make_user_environment(directory)
            | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=patient(100))[0] for rank in ranks]
    except subprocess.TimeoutExpired:
        said = ["no end within 100 s"]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    files = [directory / f"{rank}.json" for rank in range(2)]
    return [json.loads(file.read_text()) if file.exists() else {} for file in files], "\n".join(said)


@pytest.mark.parametrize("name", NAMES)
def test_on_two_ranks(results, name):
    found, said = results
    for rank, of_rank in enumerate(found):
        assert name in of_rank, f"rank {rank} never came to it\n{said[-3000:]}"
        assert not of_rank[name], f"rank {rank}: {of_rank[name]}"
