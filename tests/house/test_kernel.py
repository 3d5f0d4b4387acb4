"""The kernel knows no part, and the parts meet over few edges."""

from fnmatch import fnmatch

from kernel_and_parts import KERNEL, PATTERNS, SOURCE, arrows, part_of

# Part -> the parts of which it uses something; where one of these is not there, that alone ends with an error (E01). No two form a circle.
EDGES = {
    "sagemaker": {"engines", "plan", "comm"},
    "lab": {"plan", "comm", "web"},
    "engines": {"plan"},
    "comm": {"plan"},
    "plan": {"web"},
}


def test_the_kernel_imports_no_part(modules):
    found = [
        f"{short(module)} imports {short(target)}" for side, module, _, target in arrows(modules) if side == KERNEL
    ]
    assert not found, found


def test_parts_import_only_the_parts_that_they_may(modules):
    found = [
        f"{short(module)} of {side} imports {short(target)} of {other}"
        for side, module, other, target in arrows(modules)
        if KERNEL not in (side, other) and other not in EDGES.get(side, ())
    ]
    assert not found, found


def test_each_pattern_fits_a_file_that_no_earlier_one_takes():
    paths = [path.relative_to(SOURCE / "paceline").as_posix() for path in (SOURCE / "paceline").rglob("*.py")]
    taken: set[str] = set()
    for pattern, part in PATTERNS:
        fits = {path for path in paths if fnmatch(path, pattern)} - taken
        assert fits, pattern
        assert all(part_of(path) == part for path in fits)
        taken |= fits


def short(name: str) -> str:
    return name.removeprefix("paceline.")
