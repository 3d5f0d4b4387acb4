from collections.abc import Callable
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture
def recorded() -> Callable[[str], str]:
    """What a real machine wrote: Debian 12, kernel 6.18, 2 CPUs, control groups of version 1."""
    return lambda name: (DATA / name).read_text()
