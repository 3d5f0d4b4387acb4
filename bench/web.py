"""What the live page shows and costs: how old its newest step is, the CPU time of agent and server, the list of many runs, the browser.

    python bench/web.py                  all of it
    python bench/web.py --seconds 30     the job steps so long in each part
    python bench/web.py --no-browser     without Chromium

A real job of two ranks runs. The age of the newest step is the time since the newest step that the last answer tells of had ended, by the
script's own clock, at 20 random moments between polls of 1 Hz. CPU times are from /proc and do not depend on the load. Ages do: the load
average stands beside them. The browser is Debian's Chromium, driven by selenium; without them it is not measured, and that is said.
"""

import argparse
import http.client
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SOURCE = Path(__file__).resolve().parent.parent / "src"
TICKS = os.sysconf("SC_CLK_TCK")
CLIENTS, SAMPLES, MANY_RUNS, MANY_RANKS = 10, 20, 10_000, 4096
SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
told = open(sys.argv[1], "a", buffering=1) if os.environ["RANK"] == "0" else None
for step in range(1, 1_000_000):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    if told:
        told.write(f"{step} {time.time_ns()}\\n")
    time.sleep(0.02)
"""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=20.0, help="length of each part with a job")
    arguments.add_argument("--no-browser", action="store_true", help="leave the browser out")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, _job(Path(folder)) as job:
        print(load())
        for line in measured(job, options.seconds):
            print(line)
        if not options.no_browser:
            for line in in_browser(job):
                print(line)
    for line in list_of_many():
        print(line)
    print(load())
    return 0


def load() -> str:
    """The load beside the figures."""
    one, five, _ = os.getloadavg()
    return f"load average {one:.1f} {five:.1f} on {os.cpu_count()} cores"


# --------------------------------------------------------------------------------------------------------- a real job


class Job:
    """A job of two ranks, and the server of its page."""

    def __init__(self, folder: Path, agent: subprocess.Popen[Any], server: subprocess.Popen[Any], url: str) -> None:
        self.folder, self.agent, self.server, self.url = folder, agent, server, url
        self.run_id = next((folder / ".paceline" / "runs").iterdir()).name
        parts = urlsplit(url)
        self.address, self.headers = (
            (parts.hostname, parts.port),
            {"Authorization": f"Bearer {parts.fragment.removeprefix('k=')}"},
        )

    def ends(self) -> dict[int, int]:
        """Step -> when it ended, by the script's own clock."""
        lines = (self.folder / "steps").read_text().splitlines()
        return {int(step): int(t_ns) for step, t_ns in (line.split() for line in lines[:-1])}


class Client:
    """One tab: it asks what changed."""

    def __init__(self, job: Job) -> None:
        self.connection = http.client.HTTPConnection(*job.address, timeout=30)  # type: ignore[arg-type]
        self.job, self.cursor, self.step = job, "", 0
        self.sizes: list[tuple[bool, int]] = []

    def poll(self) -> None:
        """Ask once."""
        self.connection.request(
            "GET",
            f"/api/run/{self.job.run_id}/since?after={self.cursor}",
            headers={**self.job.headers, "Accept-Encoding": "gzip"},
        )
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.getheader("Content-Encoding") == "gzip":
            import gzip

            plain = json.loads(gzip.decompress(content))
        else:
            plain = json.loads(content)
        self.sizes.append((len(plain) > 1, len(content)))
        self.cursor = plain["cursor"]
        # The first line of the page, or one of its tiles.
        told = plain.get("step"), plain.get("model", {}).get("now", {}).get("step")
        self.step = max(self.step, *(step for step in told if step is not None), 0)


def measured(job: Job, seconds: float) -> Iterator[str]:
    """Ages, CPU times and bytes."""
    quiet = cpu_over(job, seconds)
    stop, clients = threading.Event(), [Client(job) for _ in range(CLIENTS)]
    threads = [threading.Thread(target=_tab, args=(client, stop)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        busy = cpu_over(job, seconds)
        ages = ages_of(job, clients[0])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    after = cpu_over(job, seconds)
    ages.sort()
    p50, p95 = ages[len(ages) // 2], ages[math.ceil(0.95 * len(ages)) - 1]
    yield f"age of the newest step on the page   p50 {p50:.2f} s  p95 {p95:.2f} s  largest {ages[-1]:.2f} s  ({load()})"
    # Twice without: what differs between the two is the noise of the figure.
    for name, before, with_clients, once_more in zip(("agent", "server"), quiet, busy, after, strict=True):
        without = f"{before:.2f} and {once_more:.2f} % of a core without a client"
        yield f"{name:<10} {without}, {with_clients:.2f} % with {CLIENTS} that poll at 1 Hz"
    yield f"server     {resident_mib(job.server.pid):.0f} MiB"
    for changed, text in ((True, "with"), (False, "without")):
        sizes = [size for client in clients for is_changed, size in client.sizes[1:] if is_changed is changed]
        if sizes:
            yield f"a poll {text} a change   {statistics.median(sizes):.0f} bytes (median of {len(sizes)}, largest {max(sizes)})"


def ages_of(job: Job, client: Client) -> list[float]:
    """How old the newest step on the page is, at random moments. The client's own thread polls meanwhile."""
    seen: list[tuple[int, int]] = []
    for _ in range(SAMPLES):
        time.sleep(0.3 + random.random())
        seen.append((time.time_ns(), client.step))
    ends = job.ends()
    return [(now_ns - ends[step]) / 1e9 for now_ns, step in seen if step in ends]


def cpu_over(job: Job, seconds: float) -> tuple[float, float]:
    """CPU time of agent and server, in percent of a core."""
    pids = (job.agent.pid, job.server.pid)
    before, began = [cpu_ticks(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    span = time.monotonic() - began
    used = [100 * (cpu_ticks(pid) - ticks) / TICKS / span for pid, ticks in zip(pids, before, strict=True)]
    return used[0], used[1]


def cpu_ticks(pid: int) -> int:
    """CPU time of a process, in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident_mib(pid: int) -> float:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)


def _tab(client: Client, stop: threading.Event) -> None:
    while not stop.is_set():
        client.poll()
        stop.wait(1.0)


@contextmanager
def _job(folder: Path) -> Iterator[Job]:
    (folder / "train.py").write_text(SCRIPT)
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "XDG_STATE_HOME": str(folder / "state"),
        "OMP_NUM_THREADS": "1",
    }
    started: list[subprocess.Popen[Any]] = []

    def start(*words: str, **options: Any) -> subprocess.Popen[Any]:
        argv = [sys.executable, "-m", "paceline", *words]
        started.append(
            subprocess.Popen(argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, text=True, **options)
        )
        return started[-1]

    try:
        agent = start(
            "run",
            "--nproc-per-node",
            "2",
            "--set",
            "progress=off",
            "train.py",
            str(folder / "steps"),
            stderr=subprocess.DEVNULL,
        )
        _until(lambda: (folder / "steps").exists() and (folder / "steps").stat().st_size > 2000)
        server = start("web", "--port", "0", "--json", stdout=subprocess.PIPE)
        assert server.stdout is not None
        yield Job(folder, agent, server, json.loads(server.stdout.readline())["url"])
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            if process.poll() is None:
                process.kill()
                process.wait()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < deadline, "the job makes no steps"
        time.sleep(0.05)


# -------------------------------------------------------------------------------------------------------- many runs


def list_of_many() -> Iterator[str]:
    """The list of ten thousand runs, without a browser."""
    from paceline.parts.web.cli import web
    from paceline.parts.web.serve.access import Access
    from paceline.parts.web.serve.app import App
    from paceline.parts.web.serve.exchange import HttpRequest
    from paceline.parts.web.serve.run_list import RunList

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        for number in range(MANY_RUNS):
            path = root / f"r-{number:06x}"
            path.mkdir(parents=True)
            document = {"schema": "paceline.run/2", "run_id": path.name, "name": "job", "started_ns": 10**18 + number}
            (path / "run.json").write_text(json.dumps(document))
            finished = {
                "t_ns": 10**18 + number,
                "event": "run_finished",
                "exit_code": 0,
                "status": "Completed",
                "secondary_status": "Completed",
            }
            (path / "events.jsonl").write_text(json.dumps(finished) + "\n")
        app = App(Access("t"), RunList(root, web.listed), web.readers())
        request = HttpRequest("GET", "/api/runs", (("Host", "localhost"), ("Authorization", "Bearer t")))
        for text in ("first answer", "second answer", "once all is read", "once more"):
            if text == "once all is read":
                app.runs.get_ready()
            began, cpu = time.perf_counter(), time.process_time()
            answer = app.answer(request)
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
            figures = f"{1000 * wall:.0f} ms, {1000 * cpu:.0f} ms of CPU, {len(answer.body)} bytes"
            yield f"list of {MANY_RUNS} runs   {text}: {figures}  ({load()})"
            time.sleep(2.5)


# ---------------------------------------------------------------------------------------------------------- browser

PAINTED = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
IS_READY = "return document.documentElement.hasAttribute('data-ready')"
# As many rows with a noisy plane, then the time from a pointer's move to the frame after it.
REDRAW = """
const [count, token, id, done] = arguments;
(async () => {
  const page = await (await fetch(`../api/run/${id}/since`, {headers: {Authorization: token}})).json();
  const model = page.model, columns = model.axis.columns;
  const bytes = new Uint8Array(count * columns).map(() => 1 + Math.floor(Math.random() * 250));
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  const rows = Array.from({length: count}, (_, rank) => ({rank, host: `host-${rank >> 3}`}));
  const planes = Object.fromEntries(Object.entries(model.grid.planes).map(([name, plane]) => [name, {...plane, cells64: btoa(text)}]));
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  let began = performance.now();
  paceline.page.update({...model, grid: {...model.grid, rows, planes}}, {});
  await frame();
  const anew = performance.now() - began, moves = [];
  const canvas = document.querySelector("#map-picture canvas"), box = canvas.getBoundingClientRect();
  for (let at = 1; at <= 20; at++) {
    began = performance.now();
    canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + 100 + at * 20, clientY: box.top + 60, bubbles: true}));
    await frame();
    moves.push(performance.now() - began);
  }
  moves.sort((one, other) => one - other);
  done([anew, moves[10], moves[19]]);
})();
"""


def in_browser(job: Job) -> Iterator[str]:
    """First paint, until the page is complete, and redraws of a wide map."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        yield "browser    not measured: selenium is not installed"
        return
    if not Path("/usr/bin/chromium").exists() or not Path("/usr/bin/chromedriver").exists():
        yield "browser    not measured: Debian's chromium and chromium-driver are not installed"
        return
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,1000",
    ):
        options.add_argument(word)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        base, token = job.url.split("/#")
        for name, path in (("list", "/"), ("run", f"/run/{job.run_id}"), ("run, again", f"/run/{job.run_id}?again")):
            began = time.perf_counter()
            driver.get(f"{base}{path}#{token}")
            while not driver.execute_script(IS_READY):
                time.sleep(0.01)
            ready = time.perf_counter() - began
            painted = driver.execute_script(PAINTED)
            yield f"browser    {name}: first paint {painted or -1:.0f} ms, complete {1000 * ready:.0f} ms  ({load()})"
        anew, middle, largest = driver.execute_async_script(
            REDRAW, MANY_RANKS, job.headers["Authorization"], job.run_id
        )
        figures = f"drawn anew {anew:.0f} ms, while moving {middle:.0f} ms (largest of 20 {largest:.0f} ms)"
        yield f"browser    map of {MANY_RANKS} ranks: {figures}  ({load()})"
    finally:
        driver.quit()


if __name__ == "__main__":
    sys.exit(main())
