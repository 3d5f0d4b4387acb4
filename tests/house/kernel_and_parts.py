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
# Files of a part that are not in its folder, by their paths below src/paceline: its public name, and instruments, which one folder lists.
OUTSIDE = {
    "comm.py": "comm",
    "estimator.py": "sagemaker",
    "resume.py": "resume",
    "worker/instruments/exchanges.py": "comm",
    "worker/instruments/keras_on_jax.py": "frameworks",
    "worker/instruments/tensorflow.py": "frameworks",
}
# Tests of a part that are not in tests/parts: patterns below tests/, without `test_`.
PATTERNS_OF_TESTS: tuple[tuple[str, str], ...] = (
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
PARTS = tuple(sorted(path.parent.name for path in (SOURCE / "paceline" / "parts").glob("*/part.py")))


def part_of(path: str) -> str:
    """The part of a file, given by its path below src/paceline; KERNEL for the rest."""
    top, _, inside = path.partition("/")
    return inside.partition("/")[0] if top == "parts" and "/" in inside else OUTSIDE.get(path, KERNEL)


def part_of_test(path: str) -> str:
    """The part that a file of tests is about, given by its path below tests/; KERNEL for the rest."""
    tested = path.replace("/test_", "/")
    own = next(
        (part for pattern, part in PATTERNS_OF_TESTS if fnmatch(path, pattern) or fnmatch(tested, pattern)), None
    )
    return own or part_of(tested)


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
