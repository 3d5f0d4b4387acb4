"""Pictures: what is drawn, and that many ranks make no large file."""

import random
import re
from collections import Counter

from html_tree import Tree

from paceline.views.report.drawing import bar, curves, rows

CELL = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v13h-[\d.]+z")


def drawn(picture, tag, name):
    """The attributes of the elements of this class."""
    return [
        dict(attributes) for one, attributes in Tree(picture).attributes if one == tag and ("class", name) in attributes
    ]


def cells(element):
    """Left edge, row and width of each cell of a path."""
    return [tuple(map(float, found.groups())) for found in CELL.finditer(element["d"])]


def test_a_bar_has_each_part_at_its_place():
    picture = bar("b", [("compute", 3.0), ("lost", 1.0)])
    (first,), (second,) = drawn(picture, "rect", "compute"), drawn(picture, "rect", "lost")
    assert (first["x"], first["width"], second["x"], second["width"]) == ("0", "750", "750", "250")


def test_what_is_not_known_is_not_drawn_as_if_it_were_fine():
    picture = rows("late", [("rank 0", [None, 0.0, 0.0, 0.6, None])], darkest=0.6)
    (known,), (late,), (empty,) = (drawn(picture, "path", name) for name in ("known", "cell", "empty"))
    assert cells(known) == [(256.0, 0.0, 558.0)]
    assert cells(late) == [(628.0, 0.0, 186.0)] and late["fill-opacity"] == "1"
    assert cells(empty) == [(70.0, 0.0, 930.0)]


def test_the_late_rank_is_the_darkest():
    rng = random.Random(1)
    named = [
        (f"rank {rank}", [max(0.0, rng.gauss(0.3 if rank == 5 else 0.02, 0.01)) for _ in range(300)])
        for rank in range(64)
    ]
    picture = rows("late", named)
    darkness = Counter()
    for element in drawn(picture, "path", "cell"):
        for _, y, width in cells(element):
            darkness[y] += width * float(element["fill-opacity"])
    (most, dark), (_, next_dark) = darkness.most_common(2)
    assert most == 5 * 14 and dark > 5 * next_dark
    assert len(picture) < 400_000


def test_a_gap_stays_a_gap_and_a_lonely_value_is_seen():
    picture = curves("pace", [("", [1.0, 2.0, None, 3.0, None])], str)
    (path,) = [dict(attributes)["d"] for tag, attributes in Tree(picture).attributes if tag == "path"]
    assert path.count("M") == 2 and path.count("L") == 1 and path.count("h0.5") == 2
    assert 'class="curve"' in picture
