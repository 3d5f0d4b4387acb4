"""The pictures of README and docs are those of the data, and every page that shows one finds both of its files."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("numpy")


def test_the_pictures_are_what_the_data_give(repository):
    made = subprocess.run(
        [sys.executable, str(repository / "bench" / "pictures.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (made.returncode, made.stderr) == (0, "")


@pytest.mark.parametrize("page", ["README.md", "docs/pictures.md"])
def test_a_page_names_pictures_that_are_there_for_light_and_dark(repository, page):
    text = (repository / page).read_text(encoding="utf-8")
    named = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert named and all((repository / page).parent.joinpath(name).is_file() for name in named)
    assert {name.replace("-dark", "-light") for name in named} == {name for name in named if "-light" in name}
