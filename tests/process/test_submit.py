"""The engine `local`: the contract suite on real hosts of this machine, and what is left when its keeper is killed."""

import os
import signal
from pathlib import Path

import pytest
from patience import patient
from submissions import a_submission

from paceline.facts import Program, ProgramKind
from paceline.parts.engines import jobs
from paceline.parts.engines.base import load
from paceline.parts.engines.conformance import check_cancel, check_ends, check_plan, check_refused
from paceline.parts.engines.package import package
from paceline.recording.evidence import evidence
from paceline.recording.runs import new_run_id

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

SCRIPTS = {
    "ok.py": "import torch.distributed as d; d.init_process_group('gloo'); d.barrier(); print('rank', d.get_rank())",
    "wrong.py": "raise SystemExit(3)",
    "lasts.py": "import time; print('up', flush=True); time.sleep(600)",
}


@pytest.fixture
def job(tmp_path, user_environment, monkeypatch):
    """A factory of submissions of one of the scripts, packed as `paceline submit` packs them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    code = tmp_path / "code"
    code.mkdir()
    for name, text in SCRIPTS.items():
        (code / name).write_text(text + "\n")

    def make(script, **fields):
        packed = package(code, tmp_path / "packed" / jobs.CODE_FILE)
        program = Program(kind=ProgramKind.SCRIPT, target=script)
        return a_submission(run_id=new_run_id(), name="job", program=program, package=packed, hosts=2, **fields)

    return make


@pytest.fixture
def engine(user_environment):
    return load("local", user_environment, {})


@pytest.mark.smoke
def test_the_contract_holds_on_real_hosts(engine, job, tmp_path):
    root = tmp_path / "runs"
    done = job("ok.py", environment={"API_KEY": "a-very-secret-value"})
    check_plan(engine, done)
    check_ends(engine, done, root, seconds=60)
    assert {record.host for record in evidence(root / done.run_id).ranks} == {"algo-1", "algo-2"}
    written = [path for path in (root / done.run_id).rglob("*") if path.is_file() and path.suffix != ".seg"]
    assert not [path for path in written if b"a-very-secret-value" in path.read_bytes()]
    check_ends(engine, job("wrong.py"), root, seconds=60, code=3)
    check_cancel(engine, job("lasts.py"), root, seconds=60)
    check_refused(engine, job("missing.py"), root, "U19")


@pytest.mark.slow
def test_a_keeper_that_is_killed_takes_the_job_with_it(engine, job, tmp_path, processes_of):
    lasting = job("lasts.py")
    place = jobs.make_run_dir(tmp_path / "runs", lasting.run_id)
    jobs.submit_job(lasting, engine, place)
    assert processes_of.until(place, lambda found: len(found) >= 3)
    keeper = jobs.submitted(place).handle["pid"]
    os.kill(keeper, signal.SIGKILL)
    assert processes_of.until(place, lambda found: not found)
    assert jobs.observe(place, {}).ended


@pytest.fixture
def processes_of():
    """Processes whose command line or environment names the run."""
    import time

    class Of:
        @staticmethod
        def until(place, condition, seconds=30.0):
            deadline = time.monotonic() + patient(seconds)
            while time.monotonic() < deadline:
                if condition(named(place.name)):
                    return True
                time.sleep(0.05)
            return False

    def named(run_id):
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command, environ = ((process / name).read_bytes() for name in ("cmdline", "environ"))
            except OSError:
                continue
            if run_id.encode() in command or f"PACELINE_RUN_ID={run_id}".encode() in environ.split(b"\0"):
                found.append(process.name)
        return found

    return Of
