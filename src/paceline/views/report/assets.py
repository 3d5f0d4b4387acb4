"""What a page needs besides its HTML: one style sheet, one script, and the hashes by which a policy allows them."""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

UPLOT_SHA256 = {
    "uplot.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""uPlot 1.6.32 draws the curves: github.com/leeoniq/uPlot, MIT, its licence in uplot.LICENSE.txt; as its npm package has it."""


@cache
def style_sheet() -> str:
    """The style of every page."""
    return _text("uplot.min.css") + "\n" + _text("page.css")


@cache
def script() -> str:
    """The script of every page: uPlot, and `paceline.page` with `start` and `update`."""
    return _text("uplot.min.js") + "\n" + _text("page.js")


def digest(text: str) -> str:
    """A source of a content security policy that allows this text and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def packed(model: Mapping[str, Any]) -> str:
    """A model as the text of a script element: gzip as base64, an alphabet in which nothing can end the element."""
    plain = json.dumps(model, ensure_ascii=True, separators=(",", ":"))
    return base64.b64encode(gzip.compress(plain.encode(), mtime=0)).decode()


def _text(name: str) -> str:
    return (files("paceline.views.report") / name).read_text(encoding="utf-8")
