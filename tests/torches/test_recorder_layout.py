"""Where torch has the fields of its flight recorder: what src knows of each torch, and what its headers say."""

import re
import shutil
from pathlib import Path

import pytest
from install_torch import python_of
from recorder_layout import layout_in_headers

from paceline.probes.flight_recorder_memory import LAYOUTS

torch = pytest.importorskip("torch")
INSTALLED = ("2.8.0", "2.10.0", "2.11.0", "2.12.0", "2.13.0", "2.14.1", "2.15.0")


def package_of(version):
    """The folder of the package of this torch; None: it is not installed."""
    python = python_of(version)
    return None if python is None else next(python.parents[1].glob("lib/python3*/site-packages/torch"))


def expected(version):
    major, minor = re.match(r"(\d+)\.(\d+)", version).groups()
    layout = LAYOUTS[int(major), int(minor)]
    return {name: getattr(layout, name) for name in layout.__dataclass_fields__}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_the_layout_is_that_of_the_headers():
    assert layout_in_headers(Path(torch.__file__).parent) == expected(torch.__version__)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("version", INSTALLED)
def test_the_layout_is_that_of_the_headers_of_other_torches(version):
    package = package_of(version)
    if package is None:
        pytest.skip(f"torch {version} is not installed: make torch-{version}")
    assert layout_in_headers(package) == expected(version)
