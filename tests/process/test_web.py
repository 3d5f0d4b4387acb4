"""The live page of a real job: it follows, it looks, it stops, and the job does not notice."""

import http.client
import json
import signal
import time
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.process

STEPS = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(100_000):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
    if step == 20:
        print("it steps", flush=True)
"""


class Client:
    def __init__(self, url):
        parts = urlsplit(url)
        self.address, self.token = (parts.hostname, parts.port), parts.fragment.removeprefix("k=")

    def ask(self, path, method="GET", body=None):
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, content
            return json.loads(content)
        finally:
            connection.close()


@pytest.mark.smoke
def test_the_page_follows_a_job_looks_at_it_and_stops_it(paceline):
    job = paceline.start("run", "--nproc-per-node", "2", paceline.script("train.py", STEPS))
    job.until_printed("it steps", 2)
    server = paceline.start("web", "--port", "0", "--allow-stop", "--json")
    server.until_printed("\n")
    client = Client(json.loads(server.out)["url"])
    run_id = next((paceline.directory / ".paceline" / "runs").iterdir()).name
    assert run_id in client.ask("/api/runs")["html"]["runs"]
    first = client.ask(f"/api/run/{run_id}/since")
    assert first["may_stop"] and not first["ended"]
    known = dict(first["model"])

    def follows():
        answer = client.ask(f"/api/run/{run_id}/since?after={first['cursor']}")
        known.update(answer.get("model", {}))
        return (known["now"]["step"] or 0) > (first["model"]["now"]["step"] or 0) + 20

    job.until(follows)
    job.until(lambda: "train.py" in client.ask(f"/api/run/{run_id}/look", "POST", "{}")["text"])
    assert "it steps" in json.dumps(client.ask(f"/api/run/{run_id}/logs?find=steps&rank=1"))
    assert "told to stop" in client.ask(f"/api/run/{run_id}/stop", "POST", "{}")["text"]
    job.wait()
    server.until(lambda: client.ask(f"/api/run/{run_id}/since")["ended"])
    server.process.send_signal(signal.SIGINT)
    assert server.wait(10.0).code == 0


@pytest.mark.slow
def test_a_server_beside_a_run_neither_holds_the_run_nor_ends_with_it(paceline):
    done = paceline.run("run", "--web", "--nproc-per-node", "1", paceline.script("train.py", "print('done')"))
    assert done.code == 0
    job = paceline.jobs[0]
    deadline = time.monotonic() + 60.0
    while "from a laptop" not in job.err:
        assert time.monotonic() < deadline, job.err
        time.sleep(0.05)
    (line,) = [line for line in job.err.splitlines() if line.startswith("paceline web")]
    client = Client(line.split()[2])
    run_id = paceline.evidence().run.id
    assert f"/run/{run_id}#" in line and client.ask(f"/api/run/{run_id}/since")["ended"]
    (pid,) = [pid for pid in paceline.left() if str(pid) == line.split()[-1]]
    assert paceline.evidence().run.exit_code == 0 and pid
