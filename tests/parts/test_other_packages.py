"""A part that another package ships is found by its entry point, and one that cannot be used is named."""

import subprocess
import sys
from pathlib import Path

import pytest

import paceline
from paceline.errors import UsageError
from paceline.part import GROUP, Part, _of_other_packages


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package of one module by hand: files of its metadata and the module. Returns the folder."""

    def install(name: str, entry: str, module: str) -> str:
        folder = tmp_path / "site"
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[console_scripts]\nx = y:z\n\n[{GROUP}]\n{entry}\n")
        (folder / f"{name}.py").write_text(module)
        monkeypatch.syspath_prepend(str(folder))
        return str(folder)

    return install


def test_the_part_of_another_package_is_found(package):
    folder = package("good_part", "good = good_part:PART", "from paceline.part import Part\nPART = Part()\n")
    (part,) = _of_other_packages([folder])
    assert type(part) is Part


@pytest.mark.parametrize(
    ("name", "entry", "module", "saw"),
    [
        ("raising_part", "own = raising_part:PART", "import no_such_module", "ModuleNotFoundError: No module named"),
        ("other_part", "own = other_part:PART", "PART = 1", "other_part:PART is no paceline.part.Part"),
        ("older_part", "own = older_part:PARTS", "PART = 1", "AttributeError"),
    ],
)
def test_a_part_that_cannot_be_used_is_named_with_its_package(package, name, entry, module, saw):
    with pytest.raises(UsageError) as refused:
        list(_of_other_packages([package(name, entry, module)]))
    assert (refused.value.code, refused.value.what) == ("E01", f"the part own of {name} cannot be used")
    assert saw in refused.value.saw and refused.value.next == f"pip uninstall {name}"


def test_without_such_a_package_nothing_is_loaded(tmp_path):
    (tmp_path / "x-1.0.dist-info").mkdir()
    (tmp_path / "x-1.0.dist-info" / "entry_points.txt").mkdir()
    (tmp_path / "y-1.0.dist-info").mkdir()
    (tmp_path / "y-1.0.dist-info" / "entry_points.txt").write_bytes(b"[console_scripts]\n\xff = y:z\n")
    assert not list(_of_other_packages([str(tmp_path), str(tmp_path / "none"), ""]))


@pytest.mark.process
@pytest.mark.parametrize("is_there", [True, False])
def test_the_example_gives_each_rank_its_shard_and_names_the_host_without_data(
    package, tmp_path, examples, user_environment, is_there
):
    folder = package("dataset_part", "dataset = dataset_part:PART", (examples / "dataset_part.py").read_text())
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['DATASET_SHARD'])\n")
    data = tmp_path / "data"
    if is_there:
        data.mkdir()
        (data / "one").touch()
    done = subprocess.run(
        [sys.executable, "-m", "paceline", "run", "--nproc-per-node", "2", "train.py"],
        cwd=tmp_path,
        env={**user_environment, "PYTHONPATH": f"{folder}:{Path(paceline.__file__).parents[1]}", "DATASET": str(data)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if is_there:
        assert done.returncode == 0, done.stderr
        assert "localhost has 1 files of the data set" in done.stderr and {"0 of 2", "1 of 2"} <= {
            *done.stdout.split("\n")
        }
    else:
        assert done.returncode == 2, done.stderr
        assert "error[U06]: localhost has no data set" in done.stderr and f"ls -ld {data}" in done.stderr


@pytest.mark.process
@pytest.mark.parametrize("argv", [["--help"], ["run", "train.py"], ["plan", "train.py"], ["check"]])
def test_a_part_that_cannot_be_loaded_is_refused_in_four_parts_whatever_was_asked(package, user_environment, argv):
    folder = package("raising_part", "own = raising_part:PART", "import no_such_module")
    done = subprocess.run(
        [sys.executable, "-m", "paceline", *argv],
        env={**user_environment, "PYTHONPATH": f"{folder}:{Path(paceline.__file__).parents[1]}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert (
        "error[E01]: the part own of raising_part cannot be used" in done.stderr
        and "pip uninstall raising_part" in done.stderr
    )
