"""The tables beside a ring: read while they grow, whatever is in them."""

from paceline.recording.string_table import CallSite, NamedGroup, Signature, StringTable


def test_lines_are_taken_in_once_they_are_whole(tmp_path):
    path = tmp_path / "0-1.texts"
    texts = StringTable(path)
    assert texts.update() == b""
    path.write_text(
        '["signature", 3, {"operation": "broadcast", "root": 1, "dtype": "int64", "shape": [2, 3]}]\n["site", 7, "a'
    )
    first = texts.update()
    assert texts.signatures == {3: Signature("broadcast", None, 1, "int64", (2, 3))} and texts.sites == {}
    with path.open("a") as file:
        file.write('.py", 41, "step", ["a.py:90"]]\n["group", 1, "0", [0, 1], "gloo"]\n')
    second = texts.update()
    assert texts.sites == {7: CallSite("a.py", 41, "step", ("a.py:90",))}
    assert texts.groups == {1: NamedGroup("0", (0, 1), "gloo")}
    assert first + second == path.read_bytes() and texts.update() == b""


def test_damaged_lines_cost_only_themselves(tmp_path):
    path = tmp_path / "0-1.texts"
    bad = [
        "",
        "nonsense",
        "[]",
        "{}",
        '["site", 1]',
        '["signature", "x", {}]',
        '["signature", 1, 3]',
        '["group", 1, "a", 5]',
        "null",
    ]
    path.write_bytes("\n".join(bad).encode() + b"\n\xff\xfe\n" + b'["site", 2, "b.py", 3, "f"]\n')
    texts = StringTable(path)
    texts.update()
    assert texts.sites == {2: CallSite("b.py", 3, "f")}
    assert (texts.signatures, texts.groups) == ({}, {})
