"""docs/job_file.md: every field of a job file. The page is generated from the classes into which the file is read."""

from paceline.cli.programs.api_page import definition_of, members

_CLASSES = (
    ("paceline.job_file", "JobFile", "The whole file"),
    ("paceline.facts", "Job", "`job`"),
    ("paceline.facts", "Program", "`job.program`"),
    ("paceline.facts", "ProgramKind", "`job.program.kind`"),
    ("paceline.facts", "Contract", "`job.contract`"),
    ("paceline.facts", "Channel", "An element of `job.contract.channels`"),
    ("paceline.facts", "Console", "`job.console`"),
    ("paceline.job_file", "HostSetup", "`setup`"),
)

_HEAD = """# The job file

Made by `make docs` from `src/paceline/job_file.py` and `src/paceline/facts.py`.

A submitted job travels as data, not as a command line. `paceline submit` writes it as one JSON object of schema `paceline.job/1`, and
`paceline run --job FILE` on each host reads it. On Slurm the file is `<run>/slurm/job.json`, in a SageMaker container it lies beside the
agent; over SSH, on Ray and on this machine it goes through a pipe and is never on disk.

```console
$ paceline submit --engine slurm --nnodes 2 --dry-run train.py --lr 0.1   # job.json is one of the files that it prints
$ paceline run --job job.json --node-rank 0 --master-addr algo-1          # on the first host
```

A file holds what differs from the defaults below, `schema` and, always, the fields without a default. Beside `--job` a host says only
what it alone knows: `--node-rank` and the other options of how hosts meet, `--run-dir`, how it prints, the links of `--local-hosts`, and
with `--set` the fields `run_id`, `run_dir_mode`, `plan`, `store_port`, `token_file`, `no_token`, `base_dir`, `opt_ml`, `progress` and
`json_file`. Any other option or key beside it is refused with U05. [A key of `--set`](verbs.md#keys-of---set) has the name of its field
here; `hyperparameters` and `plan` name a file there, and `no_check` is no field: a job file is not looked at. A field that a job does not
have, or a value that it cannot have, is refused with U27 before anything starts. A number stays a number: a hyperparameter is read once,
where the job is submitted."""


def job_file_page() -> str:
    """The content of the file."""
    lines = [_HEAD]
    for module, name, title in _CLASSES:
        found = definition_of(module, name)
        assert found is not None, f"{module} has no {name}"
        lines += ["", f"## {title}", "", *members(found)]
    return "\n".join(lines) + "\n"
