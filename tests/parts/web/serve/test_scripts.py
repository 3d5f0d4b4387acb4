"""The scripts of the pages never make HTML of a string, and load nothing from elsewhere."""

import re
from importlib.resources import files

import pytest

OURS = [("paceline.parts.web.serve", "live.js"), ("paceline.views.report", "page.js")]


@pytest.mark.parametrize(("package", "name"), OURS, ids=[name for _, name in OURS])
def test_no_string_becomes_html_and_nothing_comes_from_elsewhere(package, name):
    text = (files(package) / name).read_text(encoding="utf-8")
    found = re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://(?!www\.w3\.org)[\w.]+",
        text,
    )
    assert found == []
