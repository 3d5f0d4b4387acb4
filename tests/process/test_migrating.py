"""docs/migrating.md: of each pair only the import lines differ, and the right one runs on hosts of this machine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAIR = re.compile(
    r"^## (?P<title>.+?)\n+```python\n# SageMaker SDK v[23]\n(?P<left>.*?)```\n+```python\n# paceline\n(?P<right>.*?)```",
    re.M | re.S,
)
PAGE = Path(__file__).parents[2] / "docs" / "migrating.md"
PAIRS = {found["title"]: (found["left"], found["right"]) for found in PAIR.finditer(PAGE.read_text())}
HOSTS = "import os\nprint('this is', os.environ['SM_CURRENT_HOST'], 'of', os.environ['SM_HOSTS'], os.environ.get('TF_CONFIG'))\n"


def without_imports(text):
    return [line for line in text.splitlines() if not line.startswith(("from ", "import "))]


def test_every_pair_of_the_page_is_found():
    assert len(PAIRS) == PAGE.read_text().count("# paceline\n") == 5


@pytest.mark.parametrize("title", PAIRS)
def test_only_the_import_lines_differ(title):
    left, right = PAIRS[title]
    assert without_imports(left) == without_imports(right)
    assert "from paceline.estimator import" in right


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("title", PAIRS)
def test_what_the_page_shows_runs(title, examples, tmp_path, paceline):
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "data").mkdir()
    (project / "data" / "x").write_text("1")
    # One epoch of the digits: too few to read them well, and enough to train on.
    digits = (examples / "digits_ddp.py").read_text().replace("WANTED_ACCURACY = 0.95", "WANTED_ACCURACY = 0.0")
    (project / "src" / "train.py").write_text(digits)
    (project / "src" / "hosts.py").write_text(HOSTS)
    program = re.sub(r'"ml\.[a-z0-9.]+"', '"local"', PAIRS[title][1])
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=project,
        env={**paceline.environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Completed - " in done.stdout
    if "train.py" in program:
        assert "test accuracy" in done.stdout
    else:
        assert done.stdout.count("this is ") == (2 if "TensorFlow" in program else 1)
