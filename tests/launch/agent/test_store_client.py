"""The process that holds the ranks' store over all attempts, and what happens where there is none."""

import asyncio
import os
import sys

import pytest

from paceline.launch.agent import store_client
from paceline.launch.agent.host_attempt import HostIdentity
from paceline.launch.agent.store_client import NOT_HELD, HostStore

# It answers as often as it is asked, but not to port 2.
HOLDS = """
import json, socket, sys
connection = socket.socket(fileno=int(sys.argv[1]))
while said := connection.recv(4096):
    port = json.loads(said)["port"]
    if port == 3:
        sys.exit()
    connection.send(json.dumps({"failed": "port in use"} if port == 2 else {"port": port}).encode())
"""


def held(tmp_path, python, *ports):
    """What is said when each of the ports is to be held, and whether rank 0 serves the store then."""
    texts, served = [], []

    async def main():
        identity = HostIdentity(
            run_id="r", job_name="j", name="h", mark="m", environ={**os.environ, "PYTHON_EXEC": python}
        )
        store = HostStore(identity, "/", set(), lambda name, **fields: texts.append(fields["text"].partition("; ")[2]))
        for port in ports:
            store.hold(port, tmp_path)
            for _ in range(100 if port > 1 else 1):
                await asyncio.sleep(0.05)
                if (tmp_path / NOT_HELD).exists():
                    break
            served.append((tmp_path / NOT_HELD).exists())
        assert len(store.lasting) == (python == sys.executable)
        store.close()
        assert store.lasting == set()

    asyncio.run(main())
    return texts, served


@pytest.fixture
def holds(tmp_path, monkeypatch):
    program = tmp_path / "holds.py"
    program.write_text(HOLDS)
    monkeypatch.setattr(store_client, "PROGRAM", program)


def test_one_process_holds_the_stores_of_all_attempts_and_rank_0_serves_one_that_cannot_be_held(tmp_path, holds):
    texts, served = held(tmp_path, sys.executable, 1, 2, 1)
    assert (texts, served) == (["it cannot be held on h: port in use"], [False, True, False])


def test_if_the_process_has_ended_rank_0_serves_the_store(tmp_path, holds):
    texts, served = held(tmp_path, sys.executable, 3)
    assert (texts, served) == (["it cannot be held on h: the process that holds it has ended"], [True])


def test_without_an_interpreter_rank_0_serves_the_store(tmp_path):
    texts, served = held(tmp_path, str(tmp_path / "none"), 1)
    assert served == [True] and "No such file" in texts[0]
