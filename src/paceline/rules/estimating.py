"""Pages of the codes U30 to U59: what an estimator refuses.

Laid out as those of usage.
"""

PAGES: dict[str, str] = {
    "U30": """\
An argument that the estimator does not have

What it means: A name in the call is neither an argument of this class nor one of SDK v1's old names, or one argument was given under
  two names. The message names the nearest spelling where one is near.
Why it matters: SDK v2 took any name and used the ones it knew: a misspelt `instance_cuont` trained on another cluster than the one
  that was asked for, and `Estimator(distribution=...)` trained on every host alone.
What to do: Use the spelling under "next". docs/estimator.md lists every argument with what becomes of it.
Source: sagemaker-python-sdk 2.257, estimator.py, EstimatorBase; docs/estimator.md.
""",
    "U31": """\
An argument has a value that it cannot take

What it means: The argument is known; its value is not of the kind or in the range that SageMaker takes: a warm pool of spare
  capacity, a log level that is no number, a `logs=` that is none of All, Training, Rules, None.
Why it matters: The service would refuse it after the code was uploaded, and other engines would guess.
What to do: The message says what was expected.
Source: SageMaker API, CreateTrainingJob.
""",
    "U32": """\
An argument or a method that cannot be honoured here

What it means: The SDK has it, paceline does not: closed containers, recipes, the withdrawn Training Compiler, an entry point of the
  container itself. The message gives the reason.
Why it matters: Leaving it out silently would run another job than the one that was written down.
What to do: Do what stands under "next"; mostly: leave the argument out, and name the script as `entry_point`.
Source: docs/estimator.md, the table of arguments.
""",
    "U33": """\
`distribution=` is malformed

What it means: A key that nothing reads (`process_per_host` for `processes_per_host`), a value of the wrong kind, no strategy or two
  where one is needed, two that exclude each other, or more than one instance group.
Why it matters: SDK v2 ignored such keys: one process on a host of eight GPUs, with no word about it (amazon-sagemaker-examples#1872).
What to do: Write one of the forms of docs/estimator.md, such as `distribution={'torch_distributed': {'enabled': True}}`.
Source: sagemaker-python-sdk 2.257, fw_utils.py; docs/estimator.md.
""",
    "U34": """\
A strategy that this framework or this machine cannot run

What it means: `distribution=` is well formed, and what it names belongs to another framework, was withdrawn, or cannot run on this
  machine type: Trainium takes torch_distributed alone.
Why it matters: The ranks would start and find no peers.
What to do: PyTorch: torch_distributed, on CPUs too. TensorFlow: multi_worker_mirrored_strategy or parameter_server.
Source: sagemaker-python-sdk 2.257, fw_utils.py; SMDDP release notes.
""",
    "U35": """\
Hosts, types and groups do not make a cluster

What it means: No number of hosts, a type that is no place to run (`p4d.24xlarge` without `ml.`, `local-gpu`), instance_groups beside
  instance_type, a group of `distribution=` that the job does not have, or a number of ranks that is none.
Why it matters: Where a job runs and with how many ranks decides everything else.
What to do: `local` and `local_gpu` are this machine, `ml.` types are SageMaker's, with `engine=` the type may be left out. `paceline
  instances` lists them.
Source: SageMaker API, ResourceConfig; `paceline instances`.
""",
    "U36": """\
There is no such engine

What it means: `engine=` names none of paceline's engines, or `engine_options` is no dict.
Why it matters: An estimator chooses the engine from instance_type alone where `engine=` is not given; a guess here would send the job
  elsewhere.
What to do: Write local, ssh, ray, slurm or sagemaker. Options of an engine are those of `paceline submit --option`.
Source: docs/estimator.md.
""",
    "U37": """\
A hyperparameter that cannot reach the script

What it means: Not a dict, more than 100, a key longer than 256 characters or with `=` in it, a value that JSON does not have, or a
  key that begins with `sagemaker_`, which SageMaker keeps from the script.
Why it matters: Hyperparameters become the script's arguments, SM_HP_ variables and hyperparameters.json; one that is lost changes the
  training.
What to do: Rename the key, turn the value into a number, a text, a list or a dict, or put it into a file of a channel.
Source: SageMaker API, HyperParameters; docs/contract.md.
""",
    "U38": """\
A variable of `environment=` that cannot be set

What it means: Not a dict of texts, more than 100, more than 512 characters, not a variable's name, or one by which the agent tells a
  rank who it is.
Why it matters: A rank with another RANK or MASTER_ADDR waits for peers that never come. Values are never shown: they may be secrets.
What to do: Leave the agent's variables out; put long values into a file of a channel.
Source: SageMaker API, Environment.
""",
    "U39": """\
`metric_definitions=` cannot be read

What it means: Not a list of dicts with Name and Regex, more than 40, a regular expression of more than 500 characters, one that does
  not compile, or one without a group for the number.
Why it matters: A metric that never matches is missed only after the training.
What to do: `metric_definitions=[{'Name': 'loss', 'Regex': 'loss=([0-9.]+)'}]`.
Source: SageMaker API, MetricDefinition.
""",
    "U40": """\
A name that SageMaker does not take

What it means: A job's name has letters, digits and inner dashes, and at most 63 of them.
Why it matters: The name is part of addresses in S3, log streams and tags.
What to do: Use the name under "next", or give none: one is made of the class and the time.
Source: SageMaker API, TrainingJobName.
""",
    "U41": """\
Limits of time that contradict each other

What it means: `max_run` is a number of seconds up to 28 days; `max_wait` belongs to spare capacity, includes the training and is at
  least `max_run`; `max_retry_attempts` is 1 to 30.
Why it matters: A limit that is missed ends a job in the middle of its training.
What to do: Set the values under "next".
Source: SageMaker API, StoppingCondition and RetryStrategy.
""",
    "U42": """\
A network without its security groups

What it means: `subnets` (at most 16) and `security_group_ids` (at most 5) make a VPC together; one of them was given alone, or is no
  list of ids.
Why it matters: SDK v2 left the VPC away without a word when one of the two was missing.
What to do: Give both. EFA needs a group that allows everything to and from itself.
Source: SageMaker API, VpcConfig.
""",
    "U43": """\
An input that is no channel

What it means: An input of fit() is an address, a TrainingInput or a FileSystemInput; at most 20 of them; directories of this machine
  are none for SageMaker's hosts, and file systems are mounted by SageMaker alone.
Why it matters: The script would find an empty directory behind SM_CHANNEL_NAME, often hours into the queue.
What to do: Check the address; `aws s3 sync DIR s3://BUCKET/NAME` brings a directory to S3.
Source: SageMaker API, Channel; docs/contract.md.
""",
    "U44": """\
An output or a checkpoints address that cannot be used

What it means: `output_path` and `checkpoint_s3_uri` are addresses, in S3 for SageMaker; the checkpoints directory can be moved on
  SageMaker alone.
Why it matters: What a job leaves would be lost at its end, when it is dearest.
What to do: Give an address, or a directory with the engine local.
Source: SageMaker API, OutputDataConfig and CheckpointConfig.
""",
    "U45": """\
The code of the job is not there

What it means: entry_point names no file, or none in source_dir; source_dir is not a directory of this machine; a dependency is
  missing; two files would have one name.
Why it matters: Every rank would fail in the same way after the hosts had been started.
What to do: Check the path. entry_point is relative to source_dir, both to the directory that Python was started in, or to the
  repository of git_config.
Source: docs/estimator.md.
""",
    "U46": """\
git could not bring the code

What it means: `git_config=` has a key that nothing reads, no repo, a secret without https, or the program git refused. What git said
  is shown without the secret.
Why it matters: Code of another commit is another job.
What to do: Try the command under "next" as the same user. Tokens go to git through its environment, never on a command line.
Source: git-clone(1), gitcredentials(7).
""",
    "U47": """\
No container, or versions that choose none

What it means: On SageMaker a job needs a container: `image_uri=`, or `framework_version=` with `py_version=` in a region whose
  registry is known. Versions are written 2.6.0 and py311.
Why it matters: The service starts a container before anything of the job.
What to do: Name the image, or both versions and the region. Off SageMaker what is installed on the hosts is used.
Source: AWS Deep Learning Containers, available images.
""",
    "U48": """\
No such training job

What it means: attach() found no submitted job of that name or run id below this directory or in this user's index.
Why it matters: Jobs are found by the directory in which their recording lies, `.paceline/runs` where they were submitted.
What to do: `paceline ps --all` lists them; set PACELINE_HOME or go to the directory of the submission.
Source: docs/recording.md.
""",
    "U49": """\
There is no training job yet

What it means: describe(), logs(), stop(), metrics() and model_data speak of the latest job, and this estimator has submitted none.
Why it matters: Nothing could be answered.
What to do: Call fit(), or attach() to one that was submitted before.
Source: docs/estimator.md.
""",
    "U50": """\
A training job failed

What it means: fit() waited for the job, and it ended with a failure. The exception has the first failing rank, its exit code and the
  reason as attributes.
Why it matters: Later errors of other ranks are mostly the echo of the first one.
What to do: `paceline why RUN` says what happened, with the evidence.
Source: docs/diagnosis.md.
""",
    "U51": """\
No machine for the job

What it means: The engine's reason says that it had no capacity of the type that was asked for.
Why it matters: Nothing is wrong with the job.
What to do: Try another zone or type, or wait; `max_retry_attempts` starts it again.
Source: SageMaker developer guide, CapacityError.
""",
    "U52": """\
A training job came to its time limit

What it means: `max_run` was over: every rank got SIGTERM, 120 s, then SIGKILL. SDK v2 returned from fit() as if the job were done.
Why it matters: A model that was trained for half of its steps looks like any other.
What to do: Raise max_run, or save checkpoints and go on from them. `raise_on_timeout=False` gives v2's return back.
Source: aws/sagemaker-python-sdk#1937.
""",
    "U53": """\
A field that ModelTrainer or one of its parts does not have

What it means: The classes of SDK v3 forbid fields that they do not know, and so do these. The message names the nearest spelling.
Why it matters: AWS's own samples show `distribution=` on ModelTrainer, which SDK v3 refuses as well; its field is `distributed`.
What to do: Use the spelling under "next".
Source: sagemaker-train 1.27.0; docs/estimator.md.
""",
    "U54": """\
planner= cannot be used

What it means: `planner` is a dict: `trace`, a file that `paceline plan --save-trace FILE train.py` wrote, and how far the job trains,
  `steps`, or `epochs` and `samples`. It is about the machine type that instance_type names, which the catalogue has to know.
Why it matters: With it, a job that does not fit into memory or will not end within max_run is refused before it is paid for (K04, K05).
What to do: Use the form under "next", or leave planner out; then memory and time are listed as not judged.
Source: docs/plan.md; docs/estimator.md.
""",
}
