"""K06: the script is not valid Python."""

import sys
from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import grammar_of, parse

PAGE = """\
The script is not valid Python

What it means: Python refuses the file when it parses it, before the first line runs. The message has the file, the
  line and its text.
Why it matters: Every rank on every host would end with the same SyntaxError, after the code was uploaded and the
  machines were paid for. Published examples contain such code, for example statements between `except` and `finally`.
What to do: Fix the line; `python -m py_compile SCRIPT` reports the same error. If the job's py_version is newer than
  the Python that runs paceline, the check is not judged. The user's own files that the script certainly imports are
  parsed too.
Source: Python language reference, "Full Grammar specification"; ast.parse and compile of this Python.
"""


_MOST_SHOWN = 120


def find(before: BeforeRun) -> Iterator[Finding]:
    """The first syntax error of the script, if it has one."""
    if before.script is None:
        raise Unknown("the text of the script")
    grammar = grammar_of(before)
    found = parse(before.script, before.script_path, grammar)
    if not isinstance(found, SyntaxError):
        return
    version = ".".join(map(str, grammar or sys.version_info[:2]))
    where = f"{before.script_path}:{found.lineno}" if found.lineno else before.script_path
    lines = before.script.split("\n")
    text = (
        lines[found.lineno - 1].strip() if found.lineno and found.lineno <= len(lines) else (found.text or "").strip()
    )
    printable = text[:_MOST_SHOWN].encode(errors="replace").decode()
    is_script = before.script_path.endswith(".py") or "." not in before.script_path.rpartition("/")[2]
    yield Finding(
        code="K06",
        severity=Severity.ERROR,
        what=f"{where} is not valid Python {version}: {found.msg}",
        saw=f"{printable}\n{_marked(text, lines, found)}".rstrip() if text else "the file as a whole",
        next=f"edit {where}; python -m py_compile {before.script_path} reports whether it is right"
        if is_script
        else f"name the script in place of {before.script_path}",
        file=before.script_path,
        line=found.lineno,
    )


def _marked(text: str, lines: list[str], found: SyntaxError) -> str:
    """The line with a caret below the position."""
    if not found.offset or not found.lineno or found.lineno > len(lines):
        return ""
    indent = len(lines[found.lineno - 1]) - len(lines[found.lineno - 1].lstrip())
    column = found.offset - 1 - indent
    return " " * column + "^" if 0 <= column <= min(len(text), 100) else ""


RULE = Rule(code="K06", page=PAGE, find=find)
