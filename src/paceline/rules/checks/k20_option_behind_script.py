"""K20: an option of the launcher stands behind the script, where it is the script's."""

import re
from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity
from paceline.rules.job_facts import BeforeRun

PAGE = """\
An option of the launcher behind the script

What it means: What stands behind the script is the script's own. The command line has an option of paceline there, such as
  --nnodes or --json, and the script does not know it.
Why it matters: paceline never sees it: the job starts with one rank or one host in place of many, or waits for hosts that do not
  come; `paceline check` writes no SARIF file. The script ends with "unrecognized arguments", or ignores it.
What to do: Put the option before the script: `paceline run --nnodes 2 train.py`, `paceline check --json train.py`.
Source: torchrun --help, "training_script_args"; docs/running.md.
"""

# Of torchrun and of paceline, those that no training script is likely to mean.
_OPTIONS = (
    "--nnodes", "--nproc-per-node", "--node-rank", "--master-addr", "--master-port", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id",
    "--rdzv-conf", "--max-restarts", "--standalone", "--local-hosts", "--max-run", "--on-hang", "--stop-grace", "--run-dir",
    "--json", "--gradients", "--fail-on", "--sarif",
)  # fmt: skip


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each such option that neither the script nor what it imports has a word of."""
    if before.script is None:
        return
    for word in before.arguments:
        option = word.partition("=")[0].replace("_", "-")
        if option in _OPTIONS and not any(_knows(text, option) for text in before.texts):
            yield Finding(
                code="K20",
                severity=Severity.WARNING,
                what=f"{word} stands behind the script, so it is the script's, which does not know it",
                saw=f"{before.script_path} {' '.join(before.arguments)}"[:120],
                next=f"put {option} before {before.script_path}",
            )


def _knows(text: str, option: str) -> bool:
    """Whether this file may read the option. The module json says nothing about an option of that name."""
    if option == "--json":
        return re.search(r"--json\b|\bjson *[:=]", text) is not None
    bare = option.removeprefix("--")
    return bare in text or bare.replace("-", "_") in text


RULE = Rule(code="K20", page=PAGE, find=find)
