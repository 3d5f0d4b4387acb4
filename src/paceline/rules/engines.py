"""Pages of the codes E01 to E49: what keeps a job from being given to an engine, or lost it there.

Laid out as those of usage.
"""

PAGES: dict[str, str] = {
    "E01": """\
No such engine, or not installed

What it means: --engine names a place that paceline does not know, or one whose packages are not installed in this Python.
Why it matters: Engines are extras, so that a machine that needs none of them installs none.
What to do: `paceline submit --help` lists the engines; the message has the `pip install` line for the one that was asked for.
Source: paceline/launch/engines/base.py; docs/engines.md.
""",
    "E02": """\
The code cannot be shipped

What it means: The directory of the job's code is larger than 512 MiB, or holds a file that cannot be read, or a link that leads out of
  it. Nothing was submitted.
Why it matters: The directory is sent to every host before a rank starts. Data in it costs minutes at each start; a file that is
  missing there is an ImportError on a machine that nobody looks at.
What to do: Put what is not code into `.pacelineignore`, one shell pattern a line, or give `--ignore PATTERN`; data goes into a channel.
Source: paceline/launch/engines/package.py; docs/engines.md.
""",
    "E03": """\
The engine has its own way for this

What it means: An option says how hosts meet or where they record, and that is what the engine does; or the job asks for something that this
  engine cannot do, such as a number of hosts that changes.
Why it matters: Two answers to one question would be a job that waits for hosts that never come.
What to do: Leave the option out. `--nnodes` is the number of hosts, on every engine.
Source: paceline/launch/engines/base.py, Capabilities; docs/engines.md.
""",
    "E04": """\
Nothing says where the job went

What it means: The run was not given to an engine, or submission.json in its directory cannot be read.
Why it matters: Without it nobody can ask the engine about the job, or end it.
What to do: A run that was started by hand is looked at with `paceline why` and ended with `paceline stop`. Otherwise restore the file,
  or ask the engine itself (squeue, `ray status`, the SageMaker console) by the run's name.
Source: paceline/launch/engines/jobs.py; docs/recording.md.
""",
    "E05": """\
The process that keeps the job is gone, or elsewhere

What it means: On this machine, over SSH and on Ray a process of paceline keeps the job, on the machine that submitted it. It ended
  before the job had begun, because the agent refused it ("saw" has the agent's words), or it runs on another machine than the one you
  ask from.
Why it matters: Only that process can end the job in order; when it is killed, the agents on all hosts end with it.
What to do: Ask on the machine that submitted the job. Where the process ended, keeper.log in the run's directory has its last words.
Source: paceline/launch/engines/keeper.py; docs/engines.md.
""",
    "E30": """\
Slurm's commands are not on this machine

What it means: The engine slurm gives a job to `sbatch` and asks `scontrol`, `scancel` and, where there is accounting, `sacct`. One of
  them is not on PATH. Nothing was submitted.
Why it matters: Slurm has no other door that is open on every cluster: its REST daemon is seldom installed.
What to do: Submit on a login node of the cluster. Where the commands are kept in a module, load it first: `module load slurm`.
Source: sbatch(1); docs/engines.md.
""",
    "E31": """\
slurmctld cannot be reached

What it means: The commands are here, and the controller did not answer them: it is down, the network does not lead there, slurm.conf is
  missing or another one, or munge does not know this machine. "saw" has Slurm's own words.
Why it matters: Jobs that run go on without the controller; nothing can be submitted, looked at or ended until it is back.
What to do: `scontrol ping` says which controller is meant and whether it is up. SLURM_CONF names another configuration. For a job that
  runs, `paceline why` and `paceline logs` read its recording without Slurm.
Source: slurm.conf(5), SlurmctldHost and AuthType.
""",
    "E32": """\
Slurm does not let this user do that

What it means: The partition, account, QOS or reservation does not exist, or this user may not use it, or a limit of the account is
  reached. Nothing was submitted.
Why it matters: The names differ from cluster to cluster, and Slurm's message does not say which ones would do.
What to do: The command under "next" lists what there is. Then give it by name: `--option partition=... --option account=... --option
  qos=...`.
Source: slurm_errno.c of Slurm 22.05; sacctmgr(1).
""",
    "E33": """\
The cluster does not have what the job asks for

What it means: More nodes, CPUs, memory, devices or time than the partition or any of its nodes has, or a feature that no node has.
  Nothing was submitted.
Why it matters: Such a job would never start. On clusters without EnforcePartLimits Slurm takes it and lets it wait for ever; then the
  reason of the pending job says so.
What to do: The command under "next" shows what there is. Hosts are `--nnodes`; time is `--max-run` or `--option time=MINUTES`; memory,
  CPUs and devices are `--option mem= cpus-per-task= gres=`. A task in Slurm's sense is one agent with all the ranks of its host.
Source: slurm_errno.c of Slurm 22.05; slurm.conf(5), EnforcePartLimits.
""",
    "E34": """\
Slurm did not take the job

What it means: sbatch, scontrol or scancel refused for a reason that paceline has no sentence for. "saw" has Slurm's own words. Nothing
  was submitted.
Why it matters: It is passed on as it is, because a guess at what a site's plugin meant would send you the wrong way.
What to do: `paceline submit --dry-run ...` shows the command and the scripts; the administrators of the cluster know their own
  job_submit plugin.
Source: sbatch(1); slurm.conf(5), JobSubmitPlugins.
""",
    "E35": """\
An option that sbatch does not take, or that the engine says itself

What it means: `--option sbatch.NAME=VALUE` is sbatch's own --NAME=VALUE. This one sbatch does not have, or it belongs to the engine:
  the number of nodes and tasks, the output file, the signal before the limit, whether the job starts again. Or the value makes no sense
  to Slurm.
Why it matters: Two answers to one question; with another output file nobody would find the logs, with another signal no checkpoint
  would be written.
What to do: The message has paceline's own option for it. `sbatch --help` lists the others, without the dashes and with an = between.
Source: sbatch(1); paceline/launch/engines/slurm/script.py.
""",
    "E36": """\
Slurm's answer cannot be read

What it means: A job is in a state that is not in squeue's list of states of Slurm 22.05, or scontrol, sacct or sbatch wrote a line in
  another form than that version does.
Why it matters: An unknown state is not a good one, so nothing is made of it: neither "still running" nor "failed".
What to do: `sinfo --version` and the line under "saw" are what a report needs. The job itself is not touched; squeue and its recording
  show it.
Source: squeue(1), JOB STATE CODES; scontrol(1).
""",
    "E37": """\
Slurm has forgotten the job

What it means: slurmctld drops a job that has ended after MinJobAge, five minutes unless set; there is no accounting that would still
  know it, and the job's script left no word of its end, as it does unless its own node was lost.
Why it matters: How the job ended is not known; most likely its first node went away.
What to do: `paceline why` on the run's directory shows what the recording holds, up to its last second.
Source: slurm.conf(5), MinJobAge; docs/engines.md.
""",
    "E38": """\
The job cannot be laid into the run's directory

What it means: The scripts, the code and the files with secrets go to <run>/slurm and <run>/code, and the disk refused one of them, or
  no such directory can be made. Nothing was submitted, and what was laid there is gone again.
Why it matters: Every node starts from that directory: it has to be writable here, and seen by all nodes under the same path.
What to do: `paceline submit --run-dir DIR ...` with a directory on the cluster's shared file system that has room.
Source: docs/engines.md.
""",
    "E40": """\
AWS does not know who asks

What it means: No AWS credentials were found, they have expired, or AWS does not accept them. They are looked for as every AWS tool
  does: in variables (AWS_ACCESS_KEY_ID, AWS_PROFILE), in ~/.aws, in the role of this machine. Nothing was uploaded and no job was
  created.
Why it matters: A job that runs goes on without them; only looking at it, stopping it and fetching its recording need them.
What to do: `aws sts get-caller-identity` says who you are to AWS. Name a profile with `--option profile=NAME` or AWS_PROFILE, or sign
  in again: `aws sso login`. Then the same command again: it continues with the job that is there.
Source: botocore's credential chain; docs/sagemaker.md.
""",
    "E41": """\
No region, or AWS cannot be reached

What it means: Nothing says which AWS region to ask, its endpoint did not answer within 10 s five times over, or AWS takes no more
  requests of this account for the moment.
Why it matters: A job, its bucket and its logs are in one region; in another one they do not exist.
What to do: `--option region=us-east-1`, or AWS_REGION. Behind a proxy set HTTPS_PROXY; where another server stands in for AWS, such as
  `paceline sagemaker-local`, name it with `--option endpoint_url=URL` and its S3 with `--option s3_endpoint_url=URL`.
Source: botocore, retries in mode "adaptive"; docs/sagemaker.md.
""",
    "E42": """\
The bucket is not there, or closed

What it means: The job's code could not be put into the bucket, or its recording not be fetched from it: there is no such bucket, this
  user may not, or it is in another region. No job was created.
Why it matters: SageMaker's hosts take the code from there and put model, output and recording there.
What to do: Name a bucket with `--option bucket=NAME`; without it, it is sagemaker-REGION-ACCOUNT, which `aws s3 mb` makes. This user
  needs s3:PutObject, s3:GetObject and s3:DeleteObject on it, the job's role the first two.
Source: S3's error codes NoSuchBucket, AccessDenied, PermanentRedirect; docs/sagemaker.md.
""",
    "E43": """\
SageMaker refuses the job, or would

What it means: The request lacks an image, a role or an instance type, or holds what CreateTrainingJob does not take; or SageMaker was
  asked and refused: not allowed, more machines than the account may use, a name that exists, a job that it does not know. What had been
  uploaded was deleted.
Why it matters: What can be told from the request alone is told before anything is sent.
What to do: `paceline submit --engine sagemaker --dry-run ...` prints the whole request. The message has what was found and what is
  allowed.
Source: the API's limits, CreateTrainingJob; docs/sagemaker.md.
""",
    "E44": """\
The container cannot start the agent

What it means: The image's Python is older than 3.11, or it lacks a package that the agent needs and no package index can be reached
  from the job; or the archive with the code could not be unpacked. No rank was started. The same text is the job's FailureReason.
Why it matters: Nothing of the image is changed: paceline is unpacked beside the code, and so is what it needs.
What to do: Take an image with Python 3.11 or newer. In a job with network isolation, add the packages that are named to the image: `RUN
  pip install 'msgspec>=0.19' 'platformdirs>=4.2'`; the others (psutil, py-spy, nvidia-ml-py) it can do without.
Source: paceline/launch/engines/sagemaker/entry.py; docs/sagemaker.md.
""",
    "E45": """\
paceline sagemaker-local cannot listen where it should

What it means: The address or the port of --host and --port is taken, or is not this machine's.
Why it matters: A client would talk to whatever listens there instead.
What to do: `--port 0` takes a free one and prints it.
Source: bind(2); docs/sagemaker.md.
""",
    "E46": """\
The directory of sagemaker-local's jobs cannot be used

What it means: Another paceline sagemaker-local has it, it cannot be written, or a job.json in it is not one of paceline's.
Why it matters: Two servers over one directory would each run the same jobs, and each would call the other's lost.
What to do: Give this server a directory of its own with --dir. Where one job's file is broken, move that job's directory away.
Source: paceline/sagemaker_local/shelf.py; docs/sagemaker.md.
""",
    "E47": """\
The address of this job is named by its recording alone

What it means: The recording says that the job is asked at an address that is not AWS's, and this user has named that address neither in
  an AWS_ENDPOINT_URL variable nor when a job was submitted from this account. Nothing was sent.
Why it matters: A request carries your key's id and your session token. Whoever writes a file could otherwise have them sent anywhere.
What to do: Where you know the address, export the variable that the message names, and ask again. Otherwise ask whoever made the recording.
Source: paceline/launch/engines/endpoints.py; docs/sagemaker.md.
""",
}
