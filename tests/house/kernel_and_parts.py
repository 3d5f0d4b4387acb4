"""Which file is kernel and which belongs to a part: what is below src/paceline/parts/NAME, and the few that are listed here.

python tests/house/kernel_and_parts.py        files, lines and imports of the kernel and of each part, as a Markdown table
"""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from source_files import Module, imported_module, modules_of

SOURCE = Path(__file__).resolve().parents[2] / "src"
KERNEL = "kernel"
# Files of a part that are not in its folder, by their paths below src/paceline: its public names.
OUTSIDE = {
    "comm.py": "comm",
    "estimator.py": "sagemaker",
    "resume.py": "resume",
}
# Part -> the parts of which it uses something; where one of these is not there, that alone ends with an error (E01). No two form a circle.
EDGES = {
    "sagemaker": {"engines", "plan", "comm"},
    "lab": {"plan", "comm", "web"},
    "engines": {"plan"},
    "comm": {"plan"},
    "plan": {"web"},
}
# Process tests of a part: patterns below tests/.
PATTERNS_OF_TESTS: tuple[tuple[str, str], ...] = (
    ("process/test_*resume*.py", "resume"),
    ("process/test_submit.py", "engines"),
    ("process/test_web.py", "web"),
    ("process/test_metrics_follow.py", "web"),
    ("process/test_estimator_local.py", "sagemaker"),
    ("process/test_migrating.py", "sagemaker"),
    ("process/test_notebook*.py", "sagemaker"),
    ("process/test_smdistributed.py", "sagemaker"),
    ("process/test_tf_config.py", "frameworks"),
    ("process/test_tensorflow.py", "frameworks"),
    ("process/test_gradients.py", "comm"),
    ("process/test_exchange_death.py", "comm"),
    ("process/test_bench.py", "lab"),
    ("process/test_rehearse.py", "lab"),
    ("process/test_*networks.py", "lab"),
)
PARTS = tuple(sorted(path.parent.name for path in (SOURCE / "paceline" / "parts").glob("*/part.py")))


def part_of(path: str) -> str:
    """The part of a file, given by its path below src/paceline; KERNEL for the rest."""
    top, _, inside = path.partition("/")
    return inside.partition("/")[0] if top == "parts" and "/" in inside else OUTSIDE.get(path, KERNEL)


def part_of_test(path: str) -> str:
    """The part that a file of tests is about, given by its path below tests/; KERNEL for the rest."""
    return next((part for pattern, part in PATTERNS_OF_TESTS if fnmatch(path, pattern)), None) or part_of(path)


def part_of_module(module: Module) -> str:
    return part_of(module.path.relative_to(SOURCE / "paceline").as_posix())


def arrows(modules: Sequence[Module]) -> Iterator[tuple[str, str, str, str]]:
    """(side, module, side, module) of each import, and of each program started by name, from one side to another."""
    side = {module.name: part_of_module(module) for module in modules}
    for module in modules:
        found = {imported_module(one, side) for one in (*module.imports, *module.started)}
        for target in sorted(name for name in found if name in side):
            if side[target] != side[module.name]:
                yield side[module.name], module.name, side[target], target


def code_lines(module: Module) -> int:
    """Lines of code: without imports, docstrings, lines under fields, comments and blank lines."""
    texts = {
        line
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = module.path.read_text(encoding="utf-8").splitlines()
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in texts
        for number, line in enumerate(lines, 1)
    )


def table(modules: Sequence[Module]) -> str:
    """The sides with files, lines, lines of code, and imports from and to the kernel, in Markdown."""
    files, lines, code = Counter[str](), Counter[str](), Counter[str]()
    for module in modules:
        side = part_of_module(module)
        files[side] += 1
        lines[side] += len(module.path.read_text(encoding="utf-8").splitlines())
        code[side] += code_lines(module)
    between = Counter((source, target) for source, _, target, _ in arrows(modules))
    rows = [
        "| | files | lines | of code | imports from the kernel | the kernel's imports from it |",
        "|---|---|---|---|---|---|",
    ]
    for side in (KERNEL, *sorted(PARTS)):
        cells = [files[side], lines[side], code[side], between[side, KERNEL] or "", between[KERNEL, side] or ""]
        rows.append("| " + " | ".join([side, *map(str, cells)]) + " |")
    rows.append(f"| whole | {files.total()} | {lines.total()} | {code.total()} | | |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(modules_of(SOURCE)))
