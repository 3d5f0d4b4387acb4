"""What `.ci/run` leaves out is what a change cannot break."""

import subprocess

import pytest
from changed_parts import EVERYTHING, changed_files, touched
from kernel_and_parts import KERNEL


@pytest.mark.parametrize(
    ("paths", "sides"),
    [
        ([], set()),
        (["README.md", "docs/plan.md", "bench/launch.py"], set()),
        (["src/paceline/views/ps.py"], {KERNEL}),
        (["examples/digits_ddp.py"], {KERNEL}),
        (["tests/process/test_hang.py"], {KERNEL}),
        (["src/paceline/parts/resume/worker/loops.py"], {"resume"}),
        (["src/paceline/resume.py"], {"resume"}),
        (["tests/process/test_resume.py"], {"resume"}),
        # Parts that use plan: their own answers may change.
        (["src/paceline/parts/plan/planner/memory.py"], {"plan", "sagemaker", "lab", "engines", "comm"}),
        (["tests/parts/web/serve/test_app.py", "src/paceline/facts.py"], {"web", "plan", "lab", KERNEL}),
        (["src/paceline/part.py"], EVERYTHING),
        (["docs/plan.md", ".ci/run"], EVERYTHING),
        (["pyproject.toml"], EVERYTHING),
        (["tests/shared/ports.py"], EVERYTHING),
        (["something/new.py"], EVERYTHING),
        (["NEW"], EVERYTHING),
    ],
)
def test_a_change_touches_its_side_and_who_uses_it(paths, sides):
    assert touched(paths) == sides


@pytest.fixture
def clone(tmp_path):
    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True)

    git("init")
    (tmp_path / "kept.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "one")
    return tmp_path, git


def test_where_nothing_says_what_has_changed_it_may_be_everything(clone, tmp_path_factory):
    folder, _ = clone
    assert changed_files(folder) is None
    assert changed_files(tmp_path_factory.mktemp("no_repository")) is None


def test_of_a_branch_its_commits_and_what_is_not_committed_have_changed(clone):
    folder, git = clone
    git("checkout", "-b", "work")
    (folder / "committed.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "two")
    (folder / "kept.py").write_text("2")
    (folder / "new.py").write_text("3")
    assert sorted(changed_files(folder)) == ["committed.py", "kept.py", "new.py"]
