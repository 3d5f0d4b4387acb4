"""What the page carries, and how large it may be."""

import hashlib
import json
import math
import re
from importlib.resources import files

import pytest
from kept import kept
from wide import run_of

from paceline.cli import main
from paceline.views.report.assets import UPLOT_SHA256, packed, script, style_sheet
from paceline.views.report.page import page_html
from paceline.views.units import count

FOLDER = files("paceline.views.report")


def test_uplot_is_the_one_that_was_published():
    for name, digest in UPLOT_SHA256.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest
    assert "The MIT License" in (FOLDER / "uplot.LICENSE.txt").read_text()


def test_our_script_writes_no_html_and_asks_nobody():
    ours = (FOLDER / "page.js").read_text()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|fetch\(|XMLHttpRequest|import\(",
        ours,
    )
    assert "</script" not in script().lower() and "</style" not in style_sheet().lower()
    assert not re.search(r"url\(|@import", style_sheet())


def test_a_model_has_no_letter_that_ends_a_script():
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", packed({"text": "</script><!--\u2028"}))


@pytest.mark.parametrize(("ranks", "steps", "most_bytes"), [(8, 10_000, 400_000), (64, 10_000, 1_000_000)])
def test_a_page_is_small(ranks, steps, most_bytes, kept_facts):
    page = page_html(run_of(ranks, steps, kept_facts)).encode()
    assert len(page) <= most_bytes, len(page)


@pytest.mark.timeout(300)
def test_a_page_of_many_ranks_fits_a_mail(kept_facts):
    page = page_html(run_of(4096, 600, kept_facts))
    assert len(page.encode()) <= 5_000_000
    assert "448 more hosts" in page and f"{count(4096 - 500)} more" in page


@pytest.fixture
def kept_facts(tmp_path, capsys):
    assert main(["report", str(kept("straggler", tmp_path)[0]), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# ---------------------------------------------------------------------------------------------------------- colours

# Linear red, green and blue as people with the three common deficiencies see them: Machado, Oliveira, Fernandes 2009, severity 1.
DEFICIENCIES = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
# Colours that lie beside each other and must be told apart: parts of the bar, kinds of cells of the map.
BESIDE = [
    ("--compute", "--data"), ("--data", "--comm"), ("--comm", "--save"), ("--save", "--lost"), ("--compute", "--comm"),
    ("--cell-low", "--cell-high"), ("--cell-high", "--stood"), ("--stood", "--waits"), ("--cell-low", "--stood"),
    ("--cell-low", "--cell-fast"),
]  # fmt: skip


def lab(colour, deficiency):
    """CIE L*a*b*, D65, of a #rrggbb colour as it is seen with a deficiency."""
    linear = [
        (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4)
        for one in (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    ]
    red, green, blue = (
        min(max(sum(share * one for share, one in zip(row, linear, strict=True)), 0), 1)
        for row in DEFICIENCIES[deficiency]
    )
    xyz = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
    )
    x, y, z = (one ** (1 / 3) if one > 0.008856 else 7.787 * one + 16 / 116 for one in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("side", ["light", "dark"])
def test_colours_beside_each_other_are_told_apart_by_everybody(side, deficiency):
    blocks = (FOLDER / "page.css").read_text().split("}")
    block = next(one for one in blocks if "--ground" in one and ("--ground: #ffffff" in one) == (side == "light"))
    colours = dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6})", block))
    near = {pair: math.dist(*(lab(colours[name], deficiency) for name in pair)) for pair in BESIDE}
    assert {pair: value for pair, value in near.items() if value < 10} == {}


def test_a_box_that_scrolls_has_a_shadow_where_it_is_cut():
    (rule,) = re.findall(r"\.box \{([^}]*)\}", (FOLDER / "page.css").read_text())
    layers = re.findall(r"linear-gradient\(\w+, var\((--\w+)\)[^)]*\) (left|right) .*? (local|scroll)", rule)
    # What is in front comes first: at the end of the way the ground, which scrolls, covers the shadow, which does not.
    assert layers == [
        ("--ground", "left", "local"),
        ("--ground", "right", "local"),
        ("--lost", "left", "scroll"),
        ("--lost", "right", "scroll"),
    ]


def test_the_chosen_dark_side_is_the_one_of_the_browser():
    css = (FOLDER / "page.css").read_text()
    blocks = re.findall(r"--ground: #14181c.*?(?=\n *})", css, re.DOTALL)
    assert len(blocks) == 2 and blocks[0] == blocks[1]
