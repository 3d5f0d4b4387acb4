"""Which file is kernel and which belongs to a part, until each part has its folder below src/paceline/parts.

    python tests/house/kernel_and_parts.py        files, lines and imports of the kernel and of each part, as a Markdown table

A file belongs to the first pattern that fits it, and to the kernel if none fits. Patterns are below src/paceline.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from source_files import Module, imported_module, modules_of

SOURCE = Path(__file__).resolve().parents[2] / "src"
KERNEL = "kernel"
PATTERNS: tuple[tuple[str, str], ...] = (
    ("parts/comm/*", "comm"),
    ("parts/engines/*", "engines"),
    ("parts/frameworks/*", "frameworks"),
    ("parts/lab/*", "lab"),
    ("parts/plan/*", "plan"),
    ("parts/resume/*", "resume"),
    ("parts/sagemaker/*", "sagemaker"),
    ("parts/web/*", "web"),
    # Inside a rank.
    ("worker/resume/*", "resume"),
    ("worker/run_script.py", "resume"),
    ("worker/export_state.py", "resume"),
    ("worker/gradients.py", "comm"),
    ("worker/instruments/exchanges.py", "comm"),
    ("worker/smdistributed/*", "sagemaker"),
    ("worker/jax_cluster.py", "frameworks"),
    ("worker/instruments/tensorflow.py", "frameworks"),
    ("worker/instruments/keras*", "frameworks"),
    ("worker/parameter_server.py", "frameworks"),
    ("worker/bench_*", "lab"),
    ("worker/link_probe.py", "lab"),
    ("comm/*", "comm"),
    ("trace/*", "plan"),
    ("resume/*", "resume"),
    ("loops_in_source.py", "resume"),
    # On a host.
    ("launch/agent/state_*.py", "resume"),
    ("launch/agent/saver_process.py", "resume"),
    ("launch/agent/saved_job.py", "resume"),
    ("launch/resume_from.py", "resume"),
    ("launch/saved_steps.py", "resume"),
    ("launch/export_state.py", "resume"),
    ("launch/replicas.py", "resume"),
    ("launch/trace_script.py", "plan"),
    ("launch/engines/sagemaker/*", "sagemaker"),
    ("launch/engines/*", "engines"),
    ("emulate/*", "lab"),
    ("measure/rehearsal_file.py", "plan"),
    ("measure/*", "lab"),
    ("serve/*", "web"),
    ("estimator/*", "sagemaker"),
    ("sagemaker_local/*", "sagemaker"),
    # Values and what is read and written.
    ("recording/state_*.py", "resume"),
    ("recording/plain_values.py", "resume"),
    ("recording/saved_state.py", "resume"),
    ("recording/exported_state.py", "resume"),
    ("recording/baselines.py", "lab"),
    ("storage/state_store.py", "resume"),
    ("planner/regression.py", "comm"),
    ("planner/strategies.py", "comm"),
    ("planner/strategy_times.py", "comm"),
    ("planner/nccl_tests.py", "lab"),
    ("planner/slow_pairs.py", "lab"),
    ("planner/*", "plan"),
    ("rules/resumable.py", "resume"),
    # Verbs and views.
    ("cli/resume.py", "resume"),
    ("cli/sagemaker_local.py", "sagemaker"),
    ("cli/submit.py", "engines"),
    ("cli/job/submission.py", "engines"),
    ("cli/run/on_hosts.py", "engines"),
    ("cli/run/network.py", "lab"),
    ("cli/bench/*", "lab"),
    ("cli/rehearse/*", "lab"),
    ("cli/plan/*", "plan"),
    ("cli/instances.py", "plan"),
    ("cli/web.py", "web"),
    ("cli/tensorboard.py", "web"),
    ("cli/timeline.py", "web"),
    ("cli/metrics.py", "web"),
    ("views/resume.py", "resume"),
    ("views/exported_state.py", "resume"),
    ("views/submit.py", "engines"),
    ("views/bench*", "lab"),
    ("views/rehears*", "lab"),
    ("views/plan*", "plan"),
    ("views/against.py", "plan"),
    ("views/instances.py", "plan"),
    ("views/rank_page.py", "web"),
    ("views/runs_page.py", "web"),
    ("views/tensorboard.py", "web"),
    ("views/protobuf.py", "web"),
    ("views/timeline.py", "web"),
    ("views/metrics.py", "web"),
    ("views/svg.py", "web"),
)
# Tests of more than one file of a part: patterns below tests/. A file tests/x/test_y.py else belongs where src/paceline/x/y.py does.
PATTERNS_OF_TESTS: tuple[tuple[str, str], ...] = (
    ("engines/*", "engines"),
    ("web/*", "web"),
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
    ("worker/test_bench.py", "lab"),
    ("worker/test_smdistributed.py", "sagemaker"),
    ("views/test_tensorboard.py", "web"),
)
PARTS = tuple(dict.fromkeys(part for _, part in PATTERNS))


def part_of(path: str) -> str:
    """The part of a file, given by its path below src/paceline; KERNEL for the rest."""
    return next((part for pattern, part in PATTERNS if fnmatch(path, pattern)), KERNEL)


def part_of_test(path: str) -> str:
    """The part that a file of tests is about, given by its path below tests/; KERNEL for the rest."""
    own = next((part for pattern, part in PATTERNS_OF_TESTS if fnmatch(path, pattern)), None)
    return own or part_of(path.replace("/test_", "/"))


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
