"""The code of a job: one directory, whatever it was put together from."""

import subprocess
import tarfile

import pytest

from paceline.errors import UsageError
from paceline.parts.sagemaker.estimator.code import check_code, clone, code_of, credentials, shipped, without_secret


def names(directory):
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def laid(project, **values):
    with code_of(values, directory=project, environ={"PATH": "/usr/bin:/bin"}) as code:
        return code.script, names(code.directory), code.directory


def test_source_dir_is_shipped_as_it_is(project):
    script, files, directory = laid(project, entry_point="train.py", source_dir="src")
    assert (script, files, directory) == ("train.py", ["train.py"], project / "src")


def test_a_script_alone_is_shipped_alone(project):
    script, files, directory = laid(project, entry_point="alone.py")
    assert (script, files) == ("alone.py", ["alone.py"])
    assert not directory.exists()


def test_dependencies_lie_beside_the_script(project):
    (project / "libs" / "inner").mkdir(parents=True)
    (project / "libs" / "inner" / "x.py").write_text("")
    (project / "libs" / "__pycache__").mkdir()
    (project / "libs" / "__pycache__" / "x.pyc").write_text("")
    _, files, _ = laid(project, entry_point="train.py", source_dir="src", dependencies=["libs", "alone.py"])
    assert files == ["alone.py", "libs/inner/x.py", "train.py"]


def test_two_files_of_one_name_are_refused(project):
    (project / "other").mkdir()
    (project / "other" / "train.py").write_text("")
    with pytest.raises(UsageError) as refused:
        laid(project, entry_point="train.py", source_dir="src", dependencies=["other/train.py"])
    assert refused.value.code == "U02"


def test_the_nearest_script_is_named(project):
    with pytest.raises(UsageError) as refused:
        check_code({"entry_point": "trian.py", "source_dir": "src"}, project)
    assert refused.value.next == "entry_point='train.py'"


def test_the_parcel_knows_where_the_code_was_taken_from(project, tmp_path):
    values = {"entry_point": "train.py", "source_dir": "src", "dependencies": ["alone.py"]}
    with code_of(values, directory=project, environ={}) as code:
        made = shipped(code, tmp_path / "code.tar.gz", ("alone.*",))
    assert made.directory == str(project / "src")
    with tarfile.open(made.archive) as archive:
        assert archive.getnames() == ["train.py"]


@pytest.fixture
def repository_of_the_user(tmp_path):
    """A repository with two commits on main; returns its address and the commits."""
    directory = tmp_path / "origin"
    directory.mkdir()

    def git(*argv):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", "-C", str(directory), *identity, *argv], check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet", "--initial-branch", "main")
    (directory / "code" / "deep").mkdir(parents=True)
    (directory / "code" / "deep" / "t.py").write_text("")
    commits = []
    for text in ("1", "2"):
        (directory / "train.py").write_text(f"print({text})\n")
        git("add", ".")
        git("commit", "--quiet", "-m", text)
        commits.append(git("rev-parse", "HEAD"))
    return f"file://{directory}", commits


@pytest.mark.process
def test_git_brings_a_branch_or_a_commit(project, repository_of_the_user):
    address, (first, _) = repository_of_the_user
    for more, text in (
        ({}, "2"),
        ({"branch": "main"}, "2"),
        ({"commit": first}, "1"),
        ({"commit": first[:10], "branch": "main"}, "1"),
    ):
        values = {"entry_point": "train.py", "git_config": {"repo": address, **more}}
        with code_of(values, directory=project, environ={"PATH": "/usr/bin:/bin"}) as code:
            assert (code.directory / code.script).read_text() == f"print({text})\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("protocol=https\nhost=git.example:8443\n", True),
        ("protocol=https\nhost=evil.example\n", False),
        ("protocol=https\nhost=git.example:8443.evil.example\n", False),
        ("protocol=http\nhost=git.example:8443\n", False),
        ("protocol=https\nhost=evil.example\npath=host=git.example:8443\n", False),
    ],
)
def test_git_tells_the_secret_to_the_repositorys_own_host_alone(asked, told):
    argv, variables = credentials({"repo": "https://me@git.example:8443/x.git", "token": "hush"})
    environ = {"PATH": "/usr/bin:/bin", "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"}
    environ |= {"host": "1", "https": "1", **variables}
    done = subprocess.run(
        ["git", *argv, "credential", "fill"], input=asked, capture_output=True, text=True, env=environ, check=False
    )
    assert ("password=hush" in done.stdout) is told and (done.returncode == 0) is told


@pytest.mark.process
def test_what_git_refuses_is_said_without_the_token(tmp_path):
    git = {"repo": "https://somebody:hush@127.0.0.1:9/x.git", "token": "hush", "username": "somebody"}
    with pytest.raises(UsageError) as refused:
        clone(git, tmp_path / "x", {"PATH": "/usr/bin:/bin"})
    error = refused.value
    assert error.code == "U02"
    assert "hush" not in f"{error.what}{error.saw}{error.next}"


@pytest.mark.process
@pytest.mark.parametrize("key", ["token", "password"])
def test_a_secret_that_git_says_itself_is_not_passed_on(tmp_path, key):
    (tmp_path / "bin").mkdir()
    git = tmp_path / "bin/git"
    git.write_text(
        '#!/bin/sh\necho "fatal: $PACELINE_GIT_SECRET is not known to https://other.example/$PACELINE_GIT_SECRET/x" >&2; exit 128\n'
    )
    git.chmod(0o700)
    with pytest.raises(UsageError) as refused:
        clone(
            {"repo": "https://git.example/x.git", key: "hush"}, tmp_path / "x", {"PATH": f"{git.parent}:/usr/bin:/bin"}
        )
    assert refused.value.saw == "fatal: *** is not known to https://other.example/***/x"


@pytest.mark.process
@pytest.mark.parametrize(
    ("values", "code", "saw", "next"),
    [
        ({"entry_point": "absent.py"}, "U02", "the repository has code/, train.py there", "from source_dir, or from"),
        ({"entry_point": "trian.py"}, "U02", "the nearest one is train.py", "entry_point='train.py'"),
        (
            {"entry_point": "t.py", "source_dir": "deep"},
            "U02",
            "the repository has code/, train.py",
            "source_dir='code/deep'",
        ),
        ({"entry_point": "t.py", "source_dir": "none"}, "U02", "the repository has code/, train.py", "root"),
        ({"entry_point": "t.py", "branch": "nain"}, "U02", "its branches and tags are main", "'branch': 'main'"),
        ({"entry_point": "t.py", "branch": "zzz"}, "U02", "its branches and tags are main", "write one of them"),
    ],
)
def test_what_the_repository_does_not_have_is_refused_with_what_it_has(
    values, code, saw, next, project, repository_of_the_user
):
    address, _ = repository_of_the_user
    git = {"repo": address, **{key: values.pop(key) for key in ("branch",) if key in values}}
    with pytest.raises(UsageError) as refused:
        laid(project, **values, git_config=git)
    assert refused.value.code == code
    assert saw in refused.value.saw
    assert next in refused.value.next
    # Where it was cloned to is gone by now.
    assert "/tmp" not in f"{refused.value.saw}{refused.value.next}".replace(address, "")


def test_an_address_is_shown_without_its_secret():
    assert without_secret("fatal: https://a:b@host/x not found") == "fatal: https://host/x not found"
