"""The kernel knows no part, and the parts meet over few edges: what is left to turn round is listed, and the lists may only get shorter."""

from fnmatch import fnmatch

from kernel_and_parts import KERNEL, PATTERNS, SOURCE, arrows, part_of

# Part -> the parts that it may import. No two of them form a circle.
EDGES = {
    "sagemaker": {"engines", "plan", "comm"},
    "lab": {"plan", "comm", "web"},
    "engines": {"plan"},
    "plan": {"web"},
}
# Module of a part -> what it still imports of a part that it may not know.
BETWEEN_PARTS: dict[str, tuple[str, ...]] = {
    "cli.plan.recorded": ("measure.rehearsal_file",),
    "comm.auto.prediction": ("planner.collective",),
    "launch.engines.ray.job": ("recording.saved_state",),
    "launch.engines.sagemaker.request": ("recording.saved_state", "storage.state_store"),
    "planner.strategy_times": ("planner.regression",),
    "worker.resume.session": ("worker.gradients",),
}


def test_the_kernel_imports_no_part(modules):
    found = [
        f"{short(module)} imports {short(target)}" for side, module, _, target in arrows(modules) if side == KERNEL
    ]
    assert not found, found


def test_parts_import_the_parts_they_may_and_else_only_what_is_listed(modules):
    found: dict[str, set[str]] = {}
    for side, module, other, target in arrows(modules):
        if KERNEL not in (side, other) and other not in EDGES.get(side, ()):
            found.setdefault(short(module), set()).add(short(target))
    assert found == {module: set(targets) for module, targets in BETWEEN_PARTS.items()}


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
