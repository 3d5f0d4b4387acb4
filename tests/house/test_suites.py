"""Every test is in exactly one of the suites that `.ci/run` runs, or in `make wide`; nothing falls between two of them."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass

import pytest

# Run beside the tests themselves: what is collected, with its markers, as `pytest --collect-only` with the same conftest has it.
MARKERS = """
import json, pathlib

def pytest_collection_finish(session):
    found = {item.nodeid: sorted({mark.name for mark in item.iter_markers()}) for item in session.items}
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(found))
"""


@dataclass(frozen=True)
class Suite:
    """One call of pytest in a recipe of the Makefile."""

    target: str
    expression: str
    paths: tuple[str, ...]

    def has(self, name: str, markers: set[str]) -> bool:
        """Whether this call runs a test. An expression of `-m` is one of Python, with a name for each marker."""
        words = {word: word in markers for word in re.findall(r"\w+", self.expression)}
        below = not self.paths or any(name.startswith((f"{path}/", f"{path}::")) for path in self.paths)
        return below and bool(eval(self.expression, {"__builtins__": {}}, words))


@pytest.fixture(scope="module")
def suites(repository):
    """Those of `.ci/run`, and `make wide`, as make itself would call pytest."""
    if shutil.which("make") is None:
        pytest.skip("no make")
    targets = run_by_ci(repository)
    return {target: calls_of_pytest(repository, target) for target in (*targets, "wide")}


@pytest.fixture(scope="module")
def collected(repository, tmp_path_factory):
    """The markers of every test, wide ones included."""
    plugin = tmp_path_factory.mktemp("plugin") / "markers_of_tests.py"
    plugin.write_text(MARKERS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-qq", "--wide", "-p", plugin.stem, "-p", "no:cacheprovider"],
        cwd=repository, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(plugin.parent)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return {name: set(markers) for name, markers in json.loads(plugin.with_suffix(".json").read_text()).items()}


def run_by_ci(repository):
    text = (repository / ".ci/run").read_text()
    return re.findall(r"^(?:of \S+ )?(?:run|shown) ([\w-]+)", text, re.M)


def calls_of_pytest(repository, target):
    printed = subprocess.run(
        ["make", "--dry-run", "--always-make", target], cwd=repository, capture_output=True, text=True, check=True
    ).stdout
    found = []
    for line in printed.splitlines():
        words = shlex.split(line) if "-m pytest" in line else []
        if words:
            choice = words[words.index("pytest") + 1 :]
            expression = choice[choice.index("-m") + 1]
            found.append(Suite(target, expression, tuple(word for word in choice if word.startswith("tests"))))
    return found


@pytest.mark.process
def test_every_test_is_in_exactly_one_suite(suites, collected):
    calls = [call for found in suites.values() for call in found]
    assert len(collected) > 1000
    for name, markers in collected.items():
        targets = [
            call.target for call in calls if (call.target == "wide") == ("wide" in markers) and call.has(name, markers)
        ]
        assert len(targets) == 1, f"{name} ({', '.join(sorted(markers))}) is in {targets or 'no suite'}"


@pytest.mark.process
def test_make_test_shows_one_test_of_whatever_has_slow_variants(collected):
    slow_ones: dict[str, list[bool]] = {}
    for name, markers in collected.items():
        if "slow_but_first" in markers and "wide" not in markers:
            slow_ones.setdefault(name.partition("[")[0], []).append("slow" in markers)
    assert slow_ones and [name for name, slow in slow_ones.items() if slow.count(False) != 1] == []
    # A file of slow tests alone shows nothing of its subject to whoever runs `make test`; these are shown by others.
    files = {name.partition("::")[0] for name, markers in collected.items() if "wide" not in markers}
    shown = {name.partition("::")[0] for name, markers in collected.items() if not markers & {"slow", "wide"}}
    assert files - shown == SHOWN_ELSEWHERE.keys()


# A file whose tests are all slow -> where `make test` shows its subject.
SHOWN_ELSEWHERE = {
    "tests/process/test_crowd.py": "what a crowd would change is a restart, which tests/process/test_supervision.py shows",
    "tests/process/test_hang_without_recorder.py": "tests/process/test_hang.py has hangs; these are without torch's recorder",
    "tests/process/test_metrics_follow.py": "tests/parts/web/views/test_tensorboard.py has what is written",
    "tests/process/test_notebook_cells.py": "tests/process/test_notebook.py has a notebook, test_estimator_local.py the estimators",
    "tests/process/test_resume_other_ranks.py": "tests/process/test_resume.py has a resume, tests/parts/resume/worker the indices",
    "tests/process/test_resume_outputs.py": "tests/process/test_resume.py has a resume, tests/parts/resume/worker what a file is cut to",
    "tests/process/test_resume_sabotage.py": "tests/process/test_resume.py has a resume, test_export_state.py of the part damaged steps",
    "tests/torches/test_recorder_layout.py": "tests/probes/test_flight_recorder_memory.py reads the recorder of this torch",
    "tests/parts/resume/worker/test_threads.py": "what is refused is shown by tests/process/test_resume.py",
}


def test_make_test_all_runs_what_ci_runs(repository, suites):
    everything = calls_of_pytest(repository, "test-all")
    of_ci = [call for target, found in suites.items() if target != "wide" for call in found]
    assert sorted((call.expression, call.paths) for call in everything) == sorted(
        (call.expression, call.paths) for call in of_ci
    )
