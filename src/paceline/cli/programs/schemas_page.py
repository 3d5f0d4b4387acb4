"""docs/schemas.md: every JSON schema, who writes it, and what each of its keys means."""

from collections.abc import Iterator

from paceline.cli.programs.schema_keys import BEFORE, SCHEMAS, Schema, keys_of
from paceline.views.page import heading_anchor

_HEAD = """# Schemas

Made by `make docs` from the classes of the documents and from `src/paceline/cli/programs/schema_keys.py`.

Each JSON object that paceline prints, or keeps for later commands, names its schema under the key `schema`. Keys may be added to a schema.
If a key changes its name or its meaning, the number behind the slash goes up. `null` and a missing key mean unknown. What `--json` prints
has the newest number. Files are read in the number before as well: see [Read, no longer written](#read-no-longer-written).

In a path, `[]` stands for each element of a list, `{name}` for any key, and `*` for everything below. Units are in the names: `_seconds`,
`_ns` (a stamp: Unix time in ns, UTC), `_bytes`, `_fraction` (1 is all of it), `_gb_per_second` (10^9 bytes), `usd`.

One fact has one name in all schemas. These keys differ, for a reason:

* `results` of [paceline.bench](#pacelinebench2) has the keys and units of nccl-tests, because programs for its files read them.
* `hosts`, `devices` and `ranks` are numbers where something is planned, rehearsed or probed, as `--host-counts` and `--devices-per-host`
  are. They are names of hosts and numbers of ranks where a run is described.
* `compute_seconds`, `loading_seconds` and `exposed_communication_seconds` of [paceline.summary](#pacelinesummary2) are of the whole run, as
  `wall_seconds` is. In a rehearsal they are of one step, as `step_seconds` is.
* `job_name` of [paceline.tree](#pacelinetree1) is SageMaker's word.
* `loading_seconds` of [paceline.parts.plan.trace](#pacelinetrace1) is of one batch in one process, everywhere else of a step.
* Lines and tables of a recording (`events.jsonl`, segments: [recording.md](recording.md)) have no schema of their own. There, waiting for
  data is `data_seconds`, and exposed communication is `communication_seconds`: recordings of earlier versions stay readable."""


def schemas_page() -> str:
    """The content of the file."""
    lines = [_HEAD, "", "| Schema | Who writes it |", "|---|---|"]
    lines += [f"| [{one.name}](#{heading_anchor(one.name)}) | {one.where} |" for one in SCHEMAS]
    for schema in SCHEMAS:
        lines += _section(schema)
    lines += ["", "## Read, no longer written", "", "| Schema | How it differs from the next number |", "|---|---|"]
    lines += [f"| `{name}` | {differs} |" for name, differs in BEFORE.items()]
    return "\n".join(lines) + "\n"


def _section(schema: Schema) -> Iterator[str]:
    more = f" More in [{schema.page.partition('#')[0]}]({schema.page})." if schema.page else ""
    yield from ("", f"## {schema.name}", "", f"{schema.where}.{more}", "", "| Key | Meaning |", "|---|---|")
    for key in keys_of(schema):
        yield f"| `{key.path}` | {key.meaning.replace('|', chr(92) + '|')} |"
