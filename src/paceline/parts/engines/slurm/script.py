"""Makes the arguments of sbatch, the script of the job, and the script that srun starts on every node. Pure.

The agent is `paceline run --job`, so a user can read and keep the scripts, and give them to sbatch by hand.
"""

import math
import re
import shlex
from collections.abc import Mapping

from paceline.errors import UsageError
from paceline.job_file import job_text as job_file_text
from paceline.parts.engines.base import known_options
from paceline.parts.engines.submission import Submission, host_file

FOLDER = "slurm"
"""The folder in the run's directory for the scripts, the job's output, the files of each attempt, and the files with secrets."""
SCRIPT, AGENT, JOB, TOKEN, ENVIRONMENT = "job.sbatch", "agent.sh", "job.json", "token", "environment"
CANCELLED = "cancelled"
"""The file that says, once it exists, that the job was cancelled and is not requeued."""

PLACE = "{place}"
"""The placeholder for the run's directory in the arguments of sbatch. The directory is known only when the job is submitted."""

VARIABLES = {
    "job": "SLURM_JOB_ID",
    "array task": "SLURM_ARRAY_TASK_ID",
    "node rank": "SLURM_NODEID",
    "hosts": "SLURM_JOB_NODELIST",
    "host": "SLURMD_NODENAME",
    "earlier tries": "SLURM_RESTART_COUNT",
    "submitted from": "SLURM_SUBMIT_DIR",
}
"""Our noun -> Slurm's variable. The scripts read no other variable of Slurm."""

# Names for which --option NAME=VALUE means sbatch's own --NAME=VALUE.
SAME_AS_SBATCH = (
    "account", "array", "constraint", "cpus-per-task", "exclude", "exclusive", "gpus-per-node", "gres", "mem", "nodelist", "partition",
    "qos", "reservation", "time",
)  # fmt: skip
OPTIONS = ("python", "setup", *SAME_AS_SBATCH)
_PREFIX = "sbatch."
# sbatch's options that the engine sets itself -> what the user gives instead.
_OURS = {
    "error": "both streams go to slurm/job.out beside the recording",
    "job-name": "--name",
    "no-requeue": "--retries 0",
    "nodes": "the number of hosts",
    "ntasks": "--nproc-per-node",
    "ntasks-per-node": "--nproc-per-node",
    "open-mode": "every try adds to one file",
    "output": "paceline logs",
    "parsable": "the engine reads sbatch's answer",
    "requeue": "--retries",
    "signal": "--stop-grace",
    "test-only": "--dry-run",
    "wait": "--follow",
    "wrap": "the script",
}
_OPTION_NAME = re.compile(r"[a-z][a-z0-9-]+")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Time between the last rank's end and Slurm's limit: the agent and srun end, and the requeue is requested.
MARGIN_SECONDS = 30
# How long the other agents may go on after one agent has failed.
_PATIENCE_SECONDS = 10
# Slurm checks limits every half minute and may warn a minute early. The rendezvous of the hosts takes a while.
_EARLY_SECONDS, _MEETING_SECONDS = 60, 120
# Below the ephemeral range, so that no outgoing connection has the port.
_FIRST_PORT, _PORTS = 20000, 10000


def checked_options(options: Mapping[str, str]) -> Mapping[str, str]:
    """The engine's options after a check.

    Raises:  UsageError U03: an option that the engine does not have; E34: an option that the engine sets itself
    """
    known_options("slurm", {name: value for name, value in options.items() if not name.startswith(_PREFIX)}, OPTIONS)
    for name in options:
        bare = name.removeprefix(_PREFIX)
        if not name.startswith(_PREFIX):
            continue
        if bare in _OURS or bare == "array":
            instead = "--option array=..." if bare == "array" else _OURS[bare]
            raise UsageError(
                "E34",
                f"sbatch's --{bare} is not to be given",
                saw=f"--option {name}={options[name]}",
                next=f"instead: {instead}",
            )
        if not _OPTION_NAME.fullmatch(bare):
            raise UsageError(
                "E34",
                f"{bare!r} is no long option of sbatch",
                saw=f"--option {name}={options[name]}",
                next="--option sbatch.nice=100",
            )
    return options


def sbatch_argv(job: Submission, options: Mapping[str, str]) -> tuple[str, ...]:
    """The command that submits the job, with a placeholder for the run's directory.

    The options are on the command line and not in the script: there they win over the user's SBATCH_ variables.
    """
    again = ("--requeue",) if job.retries > 0 else ("--no-requeue",)
    argv = ["sbatch", "--parsable", f"--job-name={job.name}", f"--nodes={job.hosts}", "--ntasks-per-node=1", *again]
    output = "job-%a.out" if "array" in options else "job.out"
    argv += ["--open-mode=append", f"--output={PLACE}/{FOLDER}/{output}", f"--signal=B:USR2@{warning_seconds(job)}"]
    if job.max_run_seconds is not None and "time" not in options:
        argv.append(f"--time={time_minutes(job)}")
    if (cpus := cpus_per_task(job, options)) is not None:
        argv.append(f"--cpus-per-task={cpus}")
    passed = {name: value for name, value in options.items() if name in SAME_AS_SBATCH}
    passed |= {name.removeprefix(_PREFIX): value for name, value in options.items() if name.startswith(_PREFIX)}
    argv += [f"--{name}={value}" if value else f"--{name}" for name, value in sorted(passed.items())]
    return (*argv, f"{PLACE}/{FOLDER}/{SCRIPT}", PLACE)


def filled(argv: tuple[str, ...], run_dir: str) -> tuple[str, ...]:
    """The arguments of sbatch with the run's directory. In the output's name, `%` is escaped, because it begins a field of Slurm."""
    own = {f"{PLACE}/{FOLDER}/{SCRIPT}", PLACE}
    return tuple(
        word.replace(PLACE, run_dir)
        if word in own
        else word.replace(PLACE, run_dir.replace("%", "%%"))
        if word.startswith(f"--output={PLACE}")
        else word
        for word in argv
    )


def warning_seconds(job: Submission) -> int:
    """How long before its time limit Slurm warns the job. Every rank must be able to end in order, and the agents after it.

    Holds:   --stop-grace 60s -> 90
    """
    return math.ceil(job.file.job.stop_grace_seconds) + MARGIN_SECONDS


def time_minutes(job: Submission) -> int:
    """Slurm's time limit for a job with its own time limit. It is longer, so that the agent's limit comes first."""
    assert job.max_run_seconds is not None
    return math.ceil((job.max_run_seconds + warning_seconds(job) + _EARLY_SECONDS + _MEETING_SECONDS) / 60)


def cpus_per_task(job: Submission, options: Mapping[str, str]) -> str | None:
    """One CPU for every rank. Slurm gives a task one CPU by default, and for Slurm an agent with all its ranks is one task."""
    said = {"cpus-per-task", "exclusive", "sbatch.cpus-per-task", "sbatch.exclusive", "sbatch.cpus-per-gpu"} & set(
        options
    )
    return None if said or not job.ranks_per_host.isdigit() or job.ranks_per_host == "1" else job.ranks_per_host


def environment_text(environment: Mapping[str, str]) -> str:
    """The file that gives the job's environment to the agents. It may have secrets and is not part of a plan.

    Raises:  UsageError E34: a shell cannot pass on a variable of this name
    """
    for name in environment:
        if not _VARIABLE_NAME.fullmatch(name):
            raise UsageError(
                "E34",
                f"{name!r} cannot be an environment variable of a Slurm job",
                saw=name,
                next="rename it: A-Z, 0-9 and _",
            )
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(environment.items()))


def job_file(job: Submission) -> str:
    """The job file that all nodes share. Each agent's command line has the values that differ between nodes."""
    return job_file_text(host_file(job, port=_FIRST_PORT))


def agent_line(job: Submission, python: str) -> str:
    """The command of this node's agent, with variables of the shell of `agent.sh`."""
    argv = [*(shlex.quote(word) for word in (python, "-P", "-m", "paceline", "run")), f'--job "$place/{FOLDER}/{JOB}"']
    argv += ['--set run_id="$run"', '--run-dir "${place%/*}"', f'--set token_file="$place/{FOLDER}/{TOKEN}"']
    if job.hosts > 1:
        argv += ['--node-rank "$SLURM_NODEID"', '--master-addr "$first"', '--master-port "$port"']
    return " ".join(argv)


def agent_text(job: Submission, options: Mapping[str, str], python: str) -> str:
    """The script that srun starts once per node."""
    return _AGENT_TEXT.format(
        folder=FOLDER,
        environment=ENVIRONMENT,
        code=_code(job),
        setup=options.get("setup", ":"),
        hosts=job.hosts,
        patience=_PATIENCE_SECONDS,
        line=agent_line(job, options.get("python", python)),
    )


def job_text(job: Submission, options: Mapping[str, str], python: str) -> str:
    """The script of the job. It starts the agents, and `attempt_end.py` decides what follows from their end."""
    return _JOB_TEXT.format(
        folder=FOLDER,
        agent=AGENT,
        environment=ENVIRONMENT,
        token=TOKEN,
        run=shlex.quote(job.run_id),
        retries=job.retries,
        hosts=job.hosts,
        first_port=_FIRST_PORT,
        ports=_PORTS,
        patience=2 * _PATIENCE_SECONDS,
        code=_code(job),
        setup=options.get("setup", ":"),
        python=shlex.quote(options.get("python", python)),
    )


def _code(job: Submission) -> str:
    return '"$place/code"' if job.package is not None else '"$SLURM_SUBMIT_DIR"'


_AGENT_TEXT = """\
#!/bin/bash
# Started by srun, once per node: this node's agent.  agent.sh PLACE RUN FIRST PORT
set -u
place=$1 run=$2 first=$3 port=$4
notes=$place/{folder}/$run
# Signals are the agent's; this shell stays to say how it ended.
trap : TERM INT USR1 USR2
. "$place/{folder}/{environment}"
cd {code} || exit 2
printf '%s %s\\n' "$(uname -n)" "$SLURMD_NODENAME" >"$notes.$SLURM_NODEID.node"
{setup}
(
    printf '%s\\n' "$BASHPID" >"$notes.$SLURM_NODEID.agent"
    exec {line}
)
code=$?
printf '%s\\n' "$code" >"$notes.$SLURM_NODEID.end"
# srun ends the others with the first that fails: agents wait until the first one has written down why, and that one waits for them.
ends() {{ ls "$notes".*.end 2>/dev/null | wc -l; }}
waited=0
if [ "$code" != 0 ] && [ "$SLURM_NODEID" = 0 ]; then
    while [ "$(ends)" -lt {hosts} ] && [ "$waited" -lt {patience} ]; do sleep 1; waited=$((waited + 1)); done
elif [ "$code" != 0 ]; then
    while [ ! -e "$notes.0.end" ] && [ "$waited" -lt {patience} ]; do sleep 1; waited=$((waited + 1)); done
    [ -e "$notes.0.end" ] || printf '%s\n' "$code" >"$notes.$SLURM_NODEID.failed"
fi
exit "$code"
"""

_JOB_TEXT = """\
#!/bin/bash
# Written by paceline: one agent per node, and what follows from its end.  job.sbatch PLACE
# PLACE is the run's directory, which every node sees under the same path.
set -u
place=$1
retries={retries}
try=$((${{SLURM_RESTART_COUNT:-0}} + 1))
left=$((retries + 1 - try))
run={run}${{SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}}
[ "$try" = 1 ] || run=$run.$try
notes=$place/{folder}/$run
asked=

say() {{ printf 'paceline: try %s of job %s on %s: %s\\n' "$try" "$SLURM_JOB_ID" "$SLURM_JOB_NODELIST" "$1"; }}

# note CODE NEXT: how this try ended, for whoever asks when Slurm has forgotten it.
note() {{
    printf '{{"try": %s, "code": %s, "asked": "%s", "next": "%s"}}\\n' "$try" "$1" "$asked" "$2" >"$notes.ended.part"
    mv "$notes.ended.part" "$notes.ended"
}}

# Every rank is to end in order: SIGTERM to the first agent, which tells the others; to all of the steps where it cannot be reached.
stop() {{
    asked=${{asked:-$1}}
    [ -n "$step" ] || return 0
    say "$1, asks every rank to end"
    (
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            kill -0 "$step" || exit
            kill -TERM "$(cat "$notes.0.agent")" && exit
            sleep 1
        done
        scancel --ctld --signal=TERM "$SLURM_JOB_ID"
    ) 2>/dev/null &
}}
step=
trap 'stop cancelled' TERM INT
trap 'stop "time limit"' USR2

if [ "$left" -lt 0 ] || [ -e "$place/{folder}/cancelled" ]; then
    say "is not started again"
    note 200 end
    exit 200
fi
# A node that is lost now would start the job once more than was asked for.
[ "$retries" = 0 ] || [ "$left" -gt 0 ] || scontrol update JobId="$SLURM_JOB_ID" Requeue=0

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$(({first_port} + SLURM_JOB_ID % {ports}))
say "starts"
srun --nodes={hosts} --ntasks={hosts} --ntasks-per-node=1 --kill-on-bad-exit=1 --wait=0 --cpu-bind=none --mpi=none --export=ALL \\
    bash "$place/{folder}/{agent}" "$place" "$run" "$first" "$port" &
step=$!
# srun waits for a node that is gone until Slurm knows it, which takes minutes; the first agent knows after seconds.
(
    until [ -e "$notes.0.end" ]; do sleep 1; done
    [ "$(cat "$notes.0.end")" = 0 ] || {{ sleep {patience}; kill -KILL "$step"; }}
) 2>/dev/null &
watcher=$!
[ -z "$asked" ] || stop "$asked"
while :; do
    wait "$step"
    code=$?
    # A signal ends this wait, not the step.
    kill -0 "$step" 2>/dev/null || break
done
{{ kill "$watcher" && wait "$watcher"; }} 2>/dev/null

# Where the agents have their Python, it is asked what the run's code is and whether the job starts again: "CODE NEXT".
decide() {{
    . "$place/{folder}/{environment}" && cd {code} || return
    {setup}
    {python} -P -m paceline.parts.engines.slurm.attempt_end "$place" "$run" "$asked" "$code" "$left" >&3
}}
answer=$(decide 3>&1 >&2)
next=end
case $answer in
[0-9]*' '*) code=${{answer% *}} next=${{answer#* }} ;;
*) say "what follows cannot be decided: see above" ;;
esac
say "ended with $code; $next"
note "$code" "$next"
trap '' TERM
if [ "$next" = requeue ]; then
    scontrol requeue "$SLURM_JOB_ID" || note "$code" end
elif [ -e "$place/{folder}/cancelled" ]; then
    # So that Slurm, too, says that it was cancelled. A SIGTERM alone may be a preemption, after which Slurm starts the job again.
    scancel "$SLURM_JOB_ID"
    sleep 5
elif [ -z "$asked${{SLURM_ARRAY_TASK_ID:-}}" ]; then
    rm -f "$place/{folder}/{environment}" "$place/{folder}/{token}"
fi
exit "$code"
"""
