"""The kernel knows no part, and the parts meet over few edges."""

from kernel_and_parts import EDGES, KERNEL, OUTSIDE, PARTS, SOURCE, arrows


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


def test_each_file_outside_the_folder_of_its_part_is_there():
    assert [path for path in OUTSIDE if not (SOURCE / "paceline" / path).is_file()] == []
    assert set(OUTSIDE.values()) <= set(PARTS)


def short(name: str) -> str:
    return name.removeprefix("paceline.")
