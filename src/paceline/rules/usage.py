"""Pages of the U codes: what keeps a run from starting, or a question from being answered.

Each page is a title, then four sections: what it means, why it matters, what to do, source. Codes are never used twice.
"""

PAGES: dict[str, str] = {
    "U01": """\
A verb, an option or a code that paceline does not know

What it means: A word on the command line is neither a verb, nor an option of this verb, nor a code with a page. Nothing was started.
  The message names the nearest spelling where one is near.
Why it matters: An option that is silently ignored changes the job without a word. paceline refuses instead.
What to do: Use the spelling shown under "next", or read `paceline VERB --help`. Options of your own script stand after the script:
  `paceline run --nproc-per-node 2 train.py --lr 3e-4`.
Source: argparse's grammar, which is also torchrun's (torch/distributed/run.py, get_args_parser).
""",
    "U02": """\
The training script is missing

What it means: No script was named, or the file, module or program that was named is not there or cannot be read or executed.
Why it matters: Every rank would fail in the same way after the hosts had already found each other; it is said before anything starts.
What to do: Check the path, which is taken from the directory that you start in. A module needs `-m`, a program that is not
  Python needs `--no-python`, and a `.sh` entry point must be readable.
Source: torch/distributed/run.py, training_script.
""",
    "U03": """\
An option has a value that it cannot take

What it means: The option is known, its value is not of the kind it takes: a word where a number belongs, a choice that does not
  exist, a duration or a regular expression that cannot be read, a value that is missing.
Why it matters: A guess at what was meant could start the wrong job.
What to do: The message says what was expected. `paceline VERB --help` lists the choices; durations are written 90s, 5m, 12h.
Source: `paceline VERB --help`.
""",
    "U04": """\
A port is in use, or cannot be listened on

What it means: The port on which the first host's agent or the ranks' store would listen belongs to another process. Where the
  system tells, the message names that process.
Why it matters: Ranks would wait for a store that never answers, or join somebody else's.
What to do: Take another port with `--master-port`, or `--standalone` for a job of one host, which takes a free one. If the port
  is held by the rest of an old job, end that process first.
Source: bind(2), EADDRINUSE; /proc/net/tcp for the holder.
""",
    "U05": """\
Hosts and world size disagree

What it means: Two hosts of one job were started with different numbers of hosts, ranks or restarts, two of them ask for the same
  node rank, or the numbers on one command line contradict each other.
Why it matters: A process group forms only when every rank agrees on the world size; otherwise some of them wait until the timeout.
What to do: Start every host with the same `--nnodes` and the same script, and give each its own `--node-rank`, from 0 to
  nnodes-1, or none at all.
Source: torch/distributed/run.py, --nnodes and --node-rank.
""",
    "U06": """\
An input channel is malformed or cannot be read

What it means: `--channel` is not NAME=DIR or NAME=DIR:FullyReplicated or NAME=DIR:ShardedByS3Key, or DIR does not exist, or
  this user may not read it. For a URL in place of DIR, see E51.
Why it matters: The script finds an empty directory behind SM_CHANNEL_NAME, often hours into the queue.
What to do: Check the path and its rights as the user who starts the job: `ls -ld DIR`.
Source: SageMaker API, Channel and DataSource; docs/contract.md.
""",
    "U07": """\
A hyperparameter is not key=value, or its file cannot be used

What it means: `--hp` takes one key=value; `--hyperparameters` takes a JSON file that holds one object.
Why it matters: Hyperparameters become arguments of the script and SM_HP_ variables; one that is lost changes the training.
What to do: Write `--hp lr=3e-4`, once per value. Quote what the shell would take apart: `--hp 'name=it'"'"'s'`.
Source: sagemaker-training-toolkit, mapping.py; docs/contract.md.
""",
    "U08": """\
An option that loads plug-ins of torch

What it means: The option needs torch inside the launcher (`--logs-specs`, an event log handler other than null and console, a
  rendezvous back end other than static and c10d). paceline's launcher never imports torch.
Why it matters: Importing torch costs seconds and hundreds of MB per host, and a plug-in could take over what paceline supervises.
What to do: Leave the option out, or run the torchrun command that the message shows.
Source: torch/distributed/run.py; torch/distributed/elastic/rendezvous/registry.py.
""",
    "U09": """\
There is no such run

What it means: No recording has this id, several begin with it, the directory holds neither run.json nor hosts/, or no id was given and
  this directory has no run. Runs are looked for in ./.paceline/runs (or $PACELINE_HOME/runs); by their id also in the index of runs
  that this user started on this machine.
Why it matters: Verbs need to know which recording or job is meant. Without an id it is never that of another directory.
What to do: `paceline ps --all` lists every run that can be found. A recording that lies elsewhere is named by its directory.
Source: paceline/recording/runs.py.
""",
    "U10": """\
requirements.txt could not be installed

What it means: pip ended with an error while it installed the requirements of the code directory, before any rank was started.
Why it matters: The ranks would fail on import, each in its own words.
What to do: Run the pip command from the message by hand and read its output. paceline installs a requirements.txt only for a
  contract code directory or with `--install-requirements`.
Source: sagemaker-training-toolkit, modules.py.
""",
    "U11": """\
Too few accelerators, or none

What it means: `--nproc-per-node gpu` found no GPU, or more ranks were asked for than this host has GPUs where each needs its own.
  GPUs are counted through NVML and CUDA_VISIBLE_DEVICES, without importing torch.
Why it matters: Two ranks that take the same GPU fail in NCCL, or share its memory and run out of it.
What to do: Lower `--nproc-per-node`, widen CUDA_VISIBLE_DEVICES, or use `--nproc-per-node cpu`. `paceline env` shows what is seen.
Source: NVML, nvmlDeviceGetCount; torch/distributed/run.py, determine_local_world_size.
""",
    "U12": """\
The token is missing or not the same on every host

What it means: The agents of a job prove to each other that they belong together by a shared secret. This host has none where the
  first host has one, or another one; or it can be guessed (less than 16 bytes), others may read it, or it cannot be read.
Why it matters: Without it, anybody who reaches the port could join the job and run code in its ranks.
What to do: Without a word, it is ~/.config/paceline/token of the user, made once: copy it to the other hosts and name it there by
  `--token-file`. In containers set PACELINE_TOKEN on every host; where nobody else is on the network, `--no-token` does without.
Source: paceline/launch/job/connection.py, paceline/cli/token.py.
""",
    "U13": """\
The contract's directory cannot be written

What it means: The /opt/ml tree, or the base directory given in its place, or the recording's directory, refuses to be written.
Why it matters: Hyperparameters, channels, model and failure file live there; the script would fail at its first read or, worse, its
  last write.
What to do: Choose another place with `--base-dir DIR`, or make the directory writable for this user. `--opt-ml` needs rights on /opt/ml.
Source: SageMaker, "How Amazon SageMaker AI Provides Training Information"; docs/contract.md.
""",
    "U14": """\
Hosts on this machine cannot be made

What it means: `--local-hosts N` needs loopback addresses and, for names that C++ resolves too, a user and mount namespace. This
  machine refuses what is needed.
Why it matters: Ranks could not reach algo-1 ... algo-N.
What to do: Ask for fewer hosts, or run without `--local-hosts`. Where only the namespaces are refused, the job runs with
  addresses in place of names and the launcher says so.
Source: unshare(2), user_namespaces(7).
""",
    "U15": """\
Sharded files do not divide among the hosts

What it means: A channel with ShardedByS3Key gives each host every n-th file, and the number of files is no multiple of the number
  of hosts. A warning: the job starts.
Why it matters: Ranks on the hosts with fewer files run out of batches first, and the others wait for them in a collective until the
  timeout: the job hangs at the end of its first epoch.
What to do: Make the number of files a multiple of the number of hosts, use FullyReplicated, or let every rank stop after the
  same number of batches (torch's Join context does that for DDP).
Source: SageMaker API, S3DataDistributionType; docs/contract.md.
""",
    "U16": """\
A variable of the contract is too long to be set

What it means: Linux takes at most 131,071 bytes in one environment variable. One SM_ variable would be longer and is left out. A
  warning: the job starts.
Why it matters: With it, no process could be started at all; without it, a script that reads it finds nothing.
What to do: Read the same values from input/config/*.json below $SAGEMAKER_BASE_DIR, or pass fewer or shorter hyperparameters.
Source: execve(2), MAX_ARG_STRLEN.
""",
    "U17": """\
A file of the container's own configuration cannot be used

What it means: The job runs in a container that was given input/config/*.json, and one of these files cannot be read, is not
  JSON, or is not an object.
Why it matters: Hosts, channels and hyperparameters come from there; a default in their place would start another job.
What to do: Look at it with `python -m json.tool FILE` and repair what wrote it.
Source: SageMaker, "How Amazon SageMaker AI Provides Training Information"; docs/contract.md.
""",
    "U18": """\
The run's agent is on another machine, or another user's

What it means: A run is steered through a UNIX socket of its first agent, which only processes on that machine and of that user can
  reach. The recording is visible from here, the socket is not.
Why it matters: A stop that reaches nobody must not look like one that worked.
What to do: Run the same command on the machine that the message names, or send SIGTERM to the agent there, which ends the run in
  good order.
Source: unix(7).
""",
    "U19": """\
The run's agent is gone, or does not answer

What it means: run.json names an agent process that no longer exists (its pid is gone, belongs to another process now, or the machine
  was started again since), or one that does not answer on its socket.
Why it matters: Nobody supervises the run any more. Its guardian has ended the ranks of that host; the recording stays as it was.
What to do: Read what there is with `paceline logs` and `paceline top --once`, and start the run again.
Source: proc(5), field starttime of /proc/PID/stat; paceline/launch/agent/guardian.py.
""",
    "U20": """\
The recording does not hold what was asked for

What it means: The run exists, but not the log, rank, host or attempt in the question. Complete logs of a host stay on that host
  unless the runs' directory is shared between hosts.
Why it matters: Nothing found is not the same as nothing written.
What to do: Ask for what the message lists, or add the other host's directory with `--dir DIR`.
Source: paceline/recording/layout.py.
""",
    "U21": """\
The first host never answered

What it means: This host's agent tried to reach the agents' port of the first host until the join timeout, and nobody answered. "saw"
  says how the last attempt ended: refused, timed out, no route, or a name that does not resolve.
Why it matters: The job cannot form without its first host. The exit code is 201.
What to do: Start the agent there with the same `--master-addr` and `--master-port`. Refused means that the machine is there and nothing
  listens; timed out means that a firewall or a security group drops what is sent. `--rdzv-conf join_timeout=SECONDS` waits longer.
Source: connect(2); torch waits 900 s and then says "client socket has timed out".
""",
    "U22": """\
The recording or a temporary directory cannot be written

What it means: Before anything starts, paceline makes a directory for the recording (`.paceline/runs/<id>` below the current directory,
  unless `--run-dir` or PACELINE_HOME says otherwise) and a private temporary one. The system refused one of them.
Why it matters: Without them there are no logs, no telemetry and no way to ask the run anything. A disk that fills up later does not
  stop the training: what could not be written is counted and said at the end.
What to do: Start from a directory that you may write in, or name one with `--run-dir`; for the temporary one, set TMPDIR.
Source: mkdir(2).
""",
    "U23": """\
An emulated host or a limit cannot be made here

What it means: Hosts with networks of their own are network namespaces joined by virtual links, and limits are control groups. Both need
  root, the programs ip, tc and nsenter, and a kernel that allows them; "saw" says what was missing or refused.
Why it matters: Faults of a network or of a limited host cannot be shown on this machine without them. Ordinary runs do not need them.
What to do: Run it as root, after `apt-get install iproute2 util-linux`. In a container, the runtime must allow network namespaces and
  write access to /sys/fs/cgroup. `--local-hosts N` makes hosts on loopback addresses without any of this.
Source: network_namespaces(7), tc-tbf(8), cgroups(7).
""",
    "U24": """\
A log that cannot be read, or is neither a text nor a flight-recorder dump

What it means: `paceline why --log` reads what a job printed, and the dumps of torch's flight recorder (JSON, or a pickle of plain
  containers). This file is not there or may not be read, or it is something else: a binary, or a pickle that would import code
  when it is read, which is refused.
Why it matters: An answer made from bytes that are no log would be a guess, and reading a foreign pickle can run what it likes.
What to do: Name the job's output (`slurm-*.out`, `stderr.log`, what the cloud's log viewer exports); gzip is unpacked.
Source: pickle, "Restricting Globals"; torch/csrc/distributed/c10d/FlightRecorder.hpp.
""",
    "U25": """\
A run of another user

What it means: `paceline stop` and `stack` ask the process that a recording names, and `ps` the engine that it names, with your rights and
  your credentials. The directory of this run, its run.json or its submission.json belongs to somebody else, so nothing was asked.
Why it matters: Whoever writes a file could otherwise have your processes ended, or your credentials sent to an address of theirs.
What to do: Reading works: `paceline why`, `logs` and `top`, where the owner lets you. To end the job, be the user who started it.
Source: paceline/recording/owner.py.
""",
    "U26": """\
The current directory is gone

What it means: The directory that this shell is in was removed, so nothing can be found or written relative to it.
Why it matters: Runs are looked for, and recorded, below the current directory.
What to do: Change to a directory that is there. A run is also found by its id from anywhere.
Source: getcwd(3).
""",
}
