"""What every key of every JSON schema means, for docs/schemas.md; a test holds it to the documents themselves.

A document that is a class says so with the docstrings of its fields. Of the others, one line is one key: its path, two spaces or more, its
meaning. `[]` stands for the elements of a list, `{name}` for any key of an object. `= module:Class` in place of the meaning: the keys below
that path are the fields of this class and of the classes in them; `without FIELD ...` leaves some out. A line replaces the docstring of its
key. A line without a meaning takes that of `SAME`, so that a fact has one name and one meaning in all schemas.
"""

import ast
import importlib
import inspect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from textwrap import dedent
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from paceline.cli.programs.api_page import fields_of

SAME = {
    "run_id": "Id of the run.",
    "name": "Name of the job, `--name` or the script's own.",
    "directory": "The directory of the recording.",
    "command": "The command line, one word an element, without secrets.",
    "engine": "The engine that has the job.",
    "started_ns": "When it started, Unix time in ns.",
    "t_ns": "Unix time in ns.",
    "agent_pid": "Process id of the agent on that host.",
    "paceline_version": "Version of paceline.",
    "host": "Name of the host in the job.",
    "rank": "Global rank.",
    "step_count": "Number of steps.",
    "not_judged": "What could not be looked at, and why.",
    "warnings": "What makes the answer doubtful.",
    "tier": "0 nothing was measured, 1 one measured step, 2 several sizes.",
    "terms_seconds": "The parts of the step, which add up to it.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """One JSON schema."""

    name: str
    """Its name with its number, such as paceline.ps/2."""
    where: str
    """Who prints it, or which file holds it."""
    document: str = ""
    """The class of the whole document, as `module:Class without FIELD ...`."""
    keys: str = ""
    """A line for each key that no class describes, in the form that this module describes."""
    page: str = ""
    """The page that says more, with its anchor."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a schema."""

    path: str
    """Its path, such as runs[].run_id."""
    meaning: str
    """What it holds, with its unit."""


SCHEMAS = (
    Schema(
        name="paceline.bench/2",
        where="`paceline bench --json`, `-J FILE`",
        page="bench.md",
        keys="""
collective                         The collective; `sendrecv` with `--pairs`, `step` of a script.
asked                              The options as they were understood.
asked.{name}                       One of them.
made_ns                            When it was measured, Unix time in ns.
program                            Script and arguments of `bench step`.
world                              What measured.
world.ranks                        Number of ranks.
world.hosts                        Names of the hosts.
world.machines                     The hosts' own names.
world.backend                      Backend of the group.
world.device                       `cpu` or `cuda`.
world.torch                        Version of torch.
world.devices                      The ranks, with nccl-tests' keys.
world.devices[]                    = paceline.parts.lab.nccl_tests:Rank without machine
results                            A row for each size, with nccl-tests' keys and units.
results[].size                     Bytes, all ranks' parts together.
results[].count                    Elements of the call's argument.
results[].type                     Type of the elements.
results[].redop                    Reduction.
results[].root                     Root as text; -1 for none.
results[].actual_iterations        Number of iterations; fewer than asked for if the size took too long.
results[].out_of_place             Times out of place.
results[].in_place                 Times in place.
results[].{place}                  = paceline.parts.lab.nccl_tests:Timing
results[].{place}.alg_bw           Algorithm bandwidth in 10^9 bytes a second.
results[].{place}.bus_bw           Bus bandwidth in 10^9 bytes a second.
left_out                           Measurements that were left out.
left_out[]                         = paceline.parts.lab.nccl_tests:Skipped
out_of_bounds                      The check of the data.
out_of_bounds.count                Wrong elements.
out_of_bounds.okay                 Whether there is none.
average_bus_bandwidth              Over all rows.
average_bus_bandwidth.bandwidth    Bus bandwidth in 10^9 bytes a second.
average_bus_bandwidth.okay         Always `unchecked`.
pairs                              With `--pairs`: a sendrecv between each two members.
pairs[]                            = paceline.parts.lab.slow_pairs:Pair
slow                               The slow ones; null: too few pairs to judge.
slow[]                             = paceline.parts.lab.slow_pairs:Slow
strategies                         Of `bench step`: the strategies.
strategies[].gradients             Name, as for `--gradients`.
strategies[].exact                 Whether its average is exact.
strategies[].step_seconds          Duration of one step; null: it failed.
strategies[].mad_seconds  Median absolute deviation.
strategies[].step_count
strategies[].times_plain           How many times as fast as plain DDP.
strategies[].exposed_communication_fraction  Fraction of the step: communication that no computation hides.
strategies[].run_ids               Ids of its runs, until they are deleted.
strategies[].said                  What the ranks reported about the strategy.
strategies[].failure               Why it failed; empty: it did not.
take                               The strategy to take.
figures                            What `--baseline FILE` reads.
figures[].key                      What must be equal in two results that are compared.
figures[].key.{name}               One of these values.
figures[].points                   What was measured, by size, pair or strategy.
figures[].points.{name}            [seconds, median absolute deviation in seconds, number of measurements].
comparisons                        Each question, compared with the result of `--baseline`; empty without it.
comparisons[].name                 Which question; empty if there is only one.
comparisons[].comparison           What became of its figures.
comparisons[].comparison.since_ns  When the earlier result was measured, Unix time in ns.
comparisons[].comparison.worse     Labels of the figures that became slower.
comparisons[].comparison.confirmed  Whether these were measured twice.
comparisons[].comparison.figures   The figures that could be judged.
comparisons[].comparison.figures[]  = paceline.parts.comm.planner.regression:Change
comparisons[].comparison.not_judged  Labels of figures that are too noisy or new.
""",
    ),
    Schema(
        name="paceline.resume/1",
        where="`paceline resume --json`",
        page="running.md#resume-preview",
        document="paceline.parts.resume.views.resume:ResumeDocument",
    ),
    Schema(
        name="paceline.resume_export/1",
        where="`paceline resume --export --json`",
        page="running.md#resume-preview",
        document="paceline.parts.resume.views.exported_state:ExportDocument",
    ),
    Schema(
        name="paceline.checks/1",
        where="`paceline check --json`",
        page="checks.md",
        document="paceline.views.checks:ChecksDocument",
    ),
    Schema(
        name="paceline.completion/1",
        where="`paceline help --completion SHELL --json`",
        keys="""
shell    The shell that reads the script.
script   The script.
""",
    ),
    Schema(
        name="paceline.container/2",
        where="`paceline_job.json` beside the agent in a container of SageMaker",
        page="engines.md",
        keys="""
run_id
wheel   File name of paceline's wheel.
job     A job file of schema `paceline.job/1`.
job.*   See [paceline.job/1](#pacelinejob1).
""",
    ),
    Schema(
        name="paceline.curve/1",
        where="`curve.json` of `paceline bench --rehearse`; `paceline plan --curve FILE` reads it",
        page="rehearse.md",
        keys="""
hosts             Number of hosts.
ranks             Number of ranks.
backend           Backend of the group.
points            [bytes, seconds] of an all-reduce of all ranks.
within            The same inside the first host, if there are several hosts of several ranks.
within.ranks      Number of ranks.
within.points     [bytes, seconds].
among             The same among the first rank of each host.
among.ranks       Number of ranks.
among.points      [bytes, seconds].
""",
    ),
    Schema(
        name="paceline.endpoints/1",
        where="`endpoints.json` among this user's own files: addresses in place of AWS that this user named",
        keys="urls   The addresses.",
    ),
    Schema(
        name="paceline.env/2",
        where="`paceline env --json`",
        document="paceline.views.env:EnvDocument",
    ),
    Schema(
        name="paceline.error/1",
        where="Every verb with `--json`, in place of its answer, if paceline refuses or fails",
        page="codes.md",
        document="paceline.views.error:ErrorDocument",
    ),
    Schema(
        name="paceline.explain/1",
        where="`paceline help --json`, of a code `paceline help CODE --json`",
        page="codes.md",
        keys="""
verbs                     Without a CODE: every verb with what it does.
verbs.{name}              What one verb does.
codes                     Without a CODE: every code with the title of its page.
codes.{name}              Title of one page.
keys                      Without a CODE: every key of `paceline run --set` with what it is.
keys.{name}               What one key is.
code  A code with a page: `paceline help CODE`.
gone                      The code that was asked for, if it is no longer used and `code` says it now; else null.
title                     Title of the page.
what_it_means             Its sections, as text.
why_it_matters            Section.
what_to_do                Section.
source                    Section.
deciding_evidence         Section, of causes.
not_to_be_confused_with   Section, of causes.
how_to_inject_it          Section, of causes.
""",
    ),
    Schema(
        name="paceline.environment/1",
        where="`hosts/HOST/environment.json` of a recording",
        page="recording.md#environmentjson",
        keys="""
host
python             Version of the ranks' Python.
torch              Version of torch; null: it is not installed.
cuda               Version of CUDA that torch was built for.
driver             Version of the NVIDIA driver.
commit             The commit that is checked out where the script is; null: git does not know.
dirty              Paths that differ from it, at most 50.
dirty_count        Number of all such paths.
instance_type      Type of the rented machine; null: nobody here says it.
instance_from      Who says it.
region             AWS_REGION.
usd_per_hour       Price of the type in the catalogue.
price_from         Source of the price.
variables          Variables that affect a job; a value that may be a secret is ***.
variables.{name}   Value of one.
""",
    ),
    Schema(
        name="paceline.fetched/2",
        where="`sagemaker.json` in the recording of a job on SageMaker, once it was copied from there",
        keys="""
url          Where it was copied from.
file_count   Number of files that were copied.
""",
    ),
    Schema(
        name="paceline.host/2",
        where="`hosts/HOST/host.json` of a recording",
        page="recording.md#hostjson",
        keys="""
host
machine            The host's own name for itself.
kernel             Version of the kernel.
cpu_count          Number of CPUs.
agent_pid
paceline_version
python_version     Version of the agent's Python.
""",
    ),
    Schema(
        name="paceline.instances/1",
        where="`paceline plan --instances --json`",
        page="instances.md",
        keys="""
instances                                  Without `--accelerators`: the machine types.
instances[]                                = paceline.catalog.types:MachineType
instances[].accelerator_figures            Its accelerator; null: none, or not in the catalogue.
instances[].accelerator_figures            = paceline.catalog.types:Accelerator
instances[].spot                           Spot prices.
instances[].spot[]                         = paceline.catalog.lookup:SpotPrice
instances[].support                        Kind of job -> whether the type suits it.
instances[].support.{kind}                 = paceline.catalog.compatibility:Support
accelerators                               With `--accelerators`: the accelerators.
accelerators[]                             = paceline.catalog.types:Accelerator
not_judged
""",
    ),
    Schema(
        name="paceline.job/1",
        where="A job file, `paceline run --job FILE`",
        page="job_file.md",
        keys="*   Every field is on [its page](job_file.md); fields with their default are left out.",
    ),
    Schema(
        name="paceline.known_run/1",
        where="This user's index of runs, one file for each",
        keys="""
run_id
directory
""",
    ),
    Schema(
        name="paceline.listening/1",
        where="`paceline sagemaker-local --json`, once it listens",
        page="sagemaker.md#sagemaker-local",
        keys="""
url           The address.
directory     The directory where jobs are kept.
credentials   File with the key that signs requests; null: no key is needed.
s3_endpoint   The S3 server; null: AWS's own.
opt_ml        Whether jobs see /opt/ml of their own.
""",
    ),
    Schema(
        name="paceline.web/1",
        where="`paceline web --json`, once it listens",
        page="howto/web.md",
        keys="""
url                                The address, with the token.
ssh                                The command that makes the address reachable from another machine.
run_id                             Id of the run that the command line names; null: none.
pid                                Process id of the server.
""",
    ),
    Schema(
        name="paceline.since/1",
        where="`api/runs`, `api/compare` and `api/run/ID/since` of `paceline web`",
        page="howto/web.md",
        keys="""
cursor                             Say it as `after` the next time. If nothing changed since then, it is the only key.
behind_seconds                     How old the page of a wide run is, which is made seldom; beside it:
step  Newest step of the rank that is furthest behind.
last_step_seconds_ago              How long ago the newest step of a rank ended.
title                              Title of the page.
ended                              Whether no more will change.
may_stop                           Whether the page may stop the run.
note                               Why an engine could not be asked; empty: it was, or need not be.
order                              The parts of the page, in order.
html                               The parts that changed.
html.*                             HTML of a part.
model                              The keys of [paceline.page/1](#pacelinepage1) that changed.
model.*                            One of them.
""",
    ),
    Schema(
        name="paceline.log_lines/1",
        where="`api/run/ID/logs` of `paceline web`",
        page="howto/web.md",
        keys="""
lines                              The newest lines that were asked for, the oldest first.
lines[].rank
lines[].host
lines[].attempt  The attempt, from 0.
lines[].stream                     `out` or `err`.
lines[].t_ns
lines[].text                       The line.
left_out                           What was not read, or is not shown.
""",
    ),
    Schema(
        name="paceline.logs/2",
        where="`paceline logs --json`, one object a line",
        document="paceline.views.logs:LogLineDocument",
    ),
    Schema(
        name="paceline.plan/2",
        where="`paceline plan --json`",
        page="plan.md",
        keys="""
rows                       A row for each kind and number of machines.
rows[]                     = paceline.parts.plan.planner.answer:Row without machines memory step
rows[].instance_type       Instance type; null: options describe the machines.
rows[].accelerator         Name of the accelerator; null: not known.
rows[].hosts               Number of hosts.
rows[].devices             Number of devices of all hosts.
rows[].devices_per_host    Number of devices of each host.
rows[].zones               Number of availability zones.
rows[].step_seconds        Duration of one step; null: not known.
rows[].step_seconds_low    Lower end of the interval.
rows[].step_seconds_high   Upper end of the interval.
rows[].tier
rows[].terms_seconds
rows[].terms_seconds.{name}  `compute`, `exposed_communication`, `multi_device_tax`, `loading`.
rows[].memory              = paceline.parts.plan.planner.answer:Memory without assumed
rows[].formulas            With `--explain`: every formula.
rows[].formulas[]          = paceline.parts.plan.planner.answer:Formula
warnings
choice                     The machines to take.
choice.row                 Index into `rows`; null: none.
choice.name                Its name.
choice.hosts               Its number of hosts.
choice.reason              Why this one, or why none.
choice.code                `P10` if no row meets the limits; else null.
choice.nearest_row         Index of the row that misses the limits least.
advice                     Changes of the job that gain.
advice[]                   = paceline.parts.plan.planner.advice:Advice without before after aim
advice[].step_seconds_before  Duration of one step as it is.
advice[].step_seconds_after   Duration of one step with the change.
advice[].usd_before        Cost as it is.
advice[].usd_after         Cost with the change.
advice[].memory_after      Verdict on the memory with the change.
assumptions                What was taken for granted.
assumptions[]              = paceline.parts.plan.planner.workload:Assumption
not_judged
against                    With `--against`: a recorded run beside the plan.
against.run_id
against.step_count
against.step_seconds       Duration of one step.
against.mean_step_seconds  Mean duration of all measured steps.
against.difference_fraction  Measured over predicted, minus 1.
against.within_interval    Whether the measured step lies in the predicted interval.
against.terms_seconds      The parts of the step.
against.terms_seconds.{name}  One part.
against.startup_seconds    From the start to the first step.
against.memory_bytes       Memory of a device.
against.{fact}.predicted   Value of the plan; null: not known.
against.{fact}.measured    Value of the run; null: not known.
against.terms_seconds.{name}.predicted  Value of the plan; null: not known.
against.terms_seconds.{name}.measured   Value of the run; null: not known.
against.reasons            Why they differ, the largest first. Together they are the difference.
against.reasons[]          = paceline.parts.plan.planner.against:DifferenceReason
against.not_judged
""",
    ),
    Schema(
        name="paceline.prune/2",
        where="`paceline ps --prune --json`",
        document="paceline.views.prune:PruneDocument",
    ),
    Schema(
        name="paceline.ps/2",
        where="`paceline ps --json`",
        document="paceline.views.ps:RunsDocument",
    ),
    Schema(
        name="paceline.rehearsal/2",
        where="`paceline bench --rehearse --json`, its `rehearsal.json`; `paceline plan --rehearsal FILE` reads it",
        page="rehearse.md",
        document="paceline.parts.plan.planner.rehearsal:Rehearsal",
        keys="""
file                Path of `rehearsal.json`; not in the file itself, as the next.
predictions         The sizes that were not run.
predictions[]       = paceline.parts.plan.planner.rehearsal:Prediction without ranks_per_host step
predictions[].warnings
predictions[].devices           Number of ranks.
predictions[].devices_per_host  Ranks of each host.
predictions[].step_seconds  Duration of one step.
predictions[].step_seconds_low  Lower end of the interval.
predictions[].step_seconds_high Upper end of the interval.
predictions[].tier
predictions[].terms_seconds
predictions[].terms_seconds.{name}  One part of the step.
""",
    ),
    Schema(
        name="paceline.request/2",
        where="`paceline submit --dry-run --json`",
        page="engines.md",
        keys="""
run_id
engine
document          What the engine would be asked, in its own words.
document.*        The engine's own keys.
files             The files beside it.
files.{name}      Text of one file.
""",
    ),
    Schema(
        name="paceline.run/2",
        where="`run.json` of a recording",
        page="recording.md#runjson",
        keys="""
run_id
name
command
started_ns
first_host  Name of the first host.
hosts_wanted         [smallest, largest] number of hosts.
agent_pid
agent_start_ticks    Start of that process in clock ticks after the boot.
machine              The first host's own name for itself.
boot_id              Id of the boot in which it ran.
pid_namespace        The pid namespace of `agent_pid`.
control_socket       The address at which the agent answers.
paceline_version
directory
""",
    ),
    Schema(
        name="paceline.sagemaker_local/1",
        where="A job that `paceline sagemaker-local` keeps",
        page="sagemaker.md#sagemaker-local",
        document="paceline.parts.sagemaker.local.records:JobRecord",
        keys="""
request.{name}        One field of CreateTrainingJob.
metrics[].{name}      One field of FinalMetricDataList.
""",
    ),
    Schema(
        name="paceline.saved_state/2",
        where="`state/step-STEP/manifest.json` of a recording, or below the URL of the checkpoints",
        page="running.md#resume-preview",
        keys="""
manifest    = paceline.parts.resume.recording.saved_state:Manifest
sha256      SHA-256 of the text of `manifest`.
""",
    ),
    Schema(
        name="paceline.stack/2",
        where="`paceline stack --json`",
        document="paceline.views.stack:StackDocument without snapshots",
        keys="""
snapshots             One for each rank, without fields at their default.
snapshots[]           = paceline.diagnosis.snapshots:RankSnapshot without at_ns
snapshots[].t_ns      When it was taken, Unix time in ns.
""",
    ),
    Schema(
        name="paceline.stop/2",
        where="`paceline stop --json`",
        document="paceline.cli.stop:Stopped without how",
        keys="""
run_id
now   Whether it was to end without grace.
""",
    ),
    Schema(
        name="paceline.submission/2",
        where="`submission.json` of a submitted job",
        page="engines.md",
        keys="""
engine
handle            By which the engine finds the job.
handle.{name}     The engine's own keys.
name
submitted_ns      When it was submitted, Unix time in ns.
job               = paceline.parts.engines.submission:Submission without file
job.file          The job file for every agent.
job.file.*        See [paceline.job/1](#pacelinejob1).
job.environment.{name}     `***`: values may be secrets.
job.platform.*             Fields of CreateTrainingJob.
""",
    ),
    Schema(
        name="paceline.submitted/2",
        where="`paceline submit --json`",
        page="engines.md",
        document="paceline.parts.engines.views.submit:Taken",
    ),
    Schema(
        name="paceline.compare/1",
        where="`paceline compare --json`",
        document="paceline.views.compare:CompareDocument",
    ),
    Schema(
        name="paceline.metrics/1",
        where="`paceline report --format prometheus --json`",
        document="paceline.parts.web.views.metrics:MetricsDocument",
    ),
    Schema(
        name="paceline.page/1",
        where="`paceline report --json`",
        keys="""
made_ns                            When the page was made, Unix time in ns.
identity                           Which run it is.
identity.run_id
identity.name
identity.command
identity.started_ns
identity.finished_ns  When it ended, Unix time in ns; null: it lasts, or its agent left no word.
identity.paceline_version
identity.hosts  Names of the hosts.
identity.ranks_wanted  Number of ranks that the job needs.
identity.directory
state                              The badge.
state.words                        The state, and since when no step ends.
state.tone                         good, warn or bad.
verdict                            Why the run is in trouble.
verdict.*                          See [paceline.why/2](#pacelinewhy2).
summary                            The run in figures.
summary.*                          See [paceline.summary/2](#pacelinesummary2).
now                                The run at this moment; of a run that has ended, over the whole run.
now.*                              See [paceline.top/2](#pacelinetop2).
forecast                           = paceline.diagnosis.case:Forecast
forecast_text                      The same as a sentence.
told_live                          Findings of which something else was told while the run lasted.
told_live[]                        = paceline.diagnosis.verdict:LiveJudgement
restart_lines                      What each restart went on from, in words.
axis                               The time of the run, in equal parts. A list of values has one for each; null: not known.
axis.from_ns                       Its begin, Unix time in ns.
axis.to_ns                         Its end, or now.
axis.columns                       Number of parts.
pace                               Duration of a step in each part.
pace.mean_seconds                  Mean of all ranks.
pace.longest_seconds               The longest of any rank.
lateness                           Who keeps the others waiting.
lateness.rows                      The ranks of the newest attempt; of more than 64 ranks, the 64 latest. The map has all of them.
lateness.rows[]                    = paceline.recording.lateness:LateRow
grid                               The map: a row for each rank, a byte for each part of the time.
grid.rows                          Every rank of the run.
grid.rows[].rank
grid.rows[].host                   Its host in the newest attempt.
grid.base_seconds                  The median step.
grid.has_lateness                  Whether it is known how late the ranks came.
grid.late_ranks                    The ranks that keep the others waiting by more than chance.
grid.darkest_share                 The share of a step that the darkest cell of the plane `late` stands for.
grid.planes                        What the map can show: `late`, `step` (the mean step), `slowest`.
grid.planes.*                      One of these.
grid.planes.*.encoding             `u8-share`: 1 to 253 are 0 to 100 %; `u8-log2-3`: 1 to 64 are 1/8 to 8 times `base_seconds`.
grid.planes.*.cells64              The bytes, row by row, as base64; 0: not recorded, 254: not judged, 255: no step ended.
marks                              What is drawn over the time.
marks[].kind                       `standstill`, or the kind of an event.
marks[].t_ns                       Its begin.
marks[].until_ns                   The end of what lasts.
marks[].ranks                      The ranks that the others waited for.
cost                               What the hosts cost; null: no price is known.
cost.usd_per_hour                  Price of one host for an hour.
cost.price_from                    Where it is from.
cost.usd_so_far                    So far, all hosts.
cost.usd_at_end                    At the present pace; null: not known, or the run has ended.
cost.usd_lost                      The part between attempts.
notes                              What must be known of the recording first: that the run goes on, that a host is missing.
notes[].kind                       `later_version`, `agent_gone`, `no_events`, `no_step`, `host_missing` or `running`.
notes[].text                       The same in words.
machines                           How busy each host was.
machines[].host
machines[].*                       As the fields of a host in `paceline top --json`, a list of values each.
sensors_missing                    What could not be measured.
sensors_missing[].host
sensors_missing[].sensor           As the event `sensor_missing` has it.
sensors_missing[].reason           Why, in words.
stacks_text                        Where the ranks were in their code at the last snapshot; null: none was taken.
told                               What was told while the run lasted.
told[].t_ns
told[].event                       The kind of the event.
told[].text                        The event in words.
told[].is_marked                   Whether it has a line in the pictures.
logs                               What the ranks wrote last, those that say most first.
logs[]                             = paceline.recording.log_tails:LogEnd
not_judged
left_out                           What the page leaves out, in words.
""",
    ),
    Schema(
        name="paceline.summary/2",
        where="`paceline run --json` on stderr, `--set json_file=FILE`",
        page="running.md",
        document="paceline.views.summary:SummaryDocument",
        keys="""
network.asked                  = paceline.parts.lab.emulate.network:Network
network.zones                  Hosts of each zone.
network.delivered              = paceline.parts.lab.emulate.network:Delivered
""",
    ),
    Schema(
        name="paceline.top/2",
        where="`paceline top --json`",
        document="paceline.views.top:TopDocument",
    ),
    Schema(
        name="paceline.trace/1",
        where="`paceline plan --save-trace FILE`; `--trace FILE` reads it",
        page="tracing.md",
        document="paceline.parts.plan.planner.workload:Workload",
        keys="""
outcome            `traced` or `failed`.
trace_seconds      Time that the trace took.
trainable_count    Numbers in the parameters that are trained.
unused_tensors     Parameters that got no gradient.
buffer_bytes       Buffers of the modules.
sparse_gradients   Number of sparse gradients.
replicas           Options of the first DistributedDataParallel.
replicas.{name}    Value of one option.
peak_parts         What is alive at the peak.
peak_parts.{name}  Bytes of one part.
autocast_dtype     The type of torch.autocast; null: not used.
stepped            Whether an optimizer stepped.
distributed        Whether the script asked for a process group.
attention          `flash` if the script used it.
device_type        `cpu` or `cuda`, as the script saw it.
torch              Version of torch.
code               Why there is no trace: a code with a page.
what               Why there is no trace.
saw  What was seen, and what was expected.
lacks              The package without which nothing can be traced; empty: none is missing.
file               The user's file at which it failed.
line               The line in that file.
text               That line's text.
""",
    ),
    Schema(
        name="paceline.tree/1",
        where="The marker of an /opt/ml tree that paceline made",
        page="contract.md",
        keys="job_name   SageMaker's word for the name of the job.",
    ),
    Schema(
        name="paceline.why/2",
        where="`paceline why --json`",
        page="diagnosis.md",
        document="paceline.views.why:WhyDocument",
    ),
)

# Schemas that are read and no longer written -> what differs.
BEFORE = {
    "paceline.rehearsal/1": "`run_id` was `run`, `step_count` was `steps`, and `accelerator` was `device`.",
    "paceline.run/1": "`run_id` was `id`.",
    "paceline.submission/1": "The fields of `job` were flat.",
}


def keys_of(schema: Schema) -> Iterator[Key]:
    """Every key of a schema, once, in order."""
    of_class = _described("", schema.document) if schema.document else ()
    return iter({key.path: key for key in (*of_class, *_lines(schema.keys))}.values())


def _lines(text: str) -> Iterator[Key]:
    said: set[str] = set()
    for line in text.strip().splitlines():
        path, _, meaning = (part.strip() for part in line.strip().partition(" "))
        if meaning.startswith("= "):
            yield from (key for key in _described(path, meaning.removeprefix("= ")) if key.path not in said)
        else:
            said.add(path)
            yield Key(path, meaning or SAME[path.rpartition(".")[2]])


def _described(path: str, definition: str) -> Iterator[Key]:
    """The keys of a class, which is named as `module:Class without FIELD ...`, at a path."""
    module, _, name = definition.partition(":")
    name, _, left_out = name.partition(" without ")
    kind = getattr(importlib.import_module(module), name)
    if path and not path.endswith("]"):
        yield Key(path, (kind.__doc__ or "").partition("\n")[0])
    yield from _below(path, kind, left_out.split())


def _below(path: str, kind: Any, left_out: Collection[str] = ()) -> Iterator[Key]:
    """The keys below a path whose value has this type; not the fields `left_out` of it."""
    container, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        meanings = _meanings(kind)
        for name, key, inside in _fields(kind):
            if name not in left_out:
                here = f"{path}.{key}" if path else key
                yield Key(here, meanings[name])
                yield from _below(here, inside)
    elif isinstance(container, type) and issubclass(container, Mapping):
        yield Key(f"{path}.{{name}}", "One of them.")
        yield from _below(f"{path}.{{name}}", inner[1])
    else:
        here = path if container in (Union, UnionType) else f"{path}[]"
        for inside in inner:
            yield from _below(here, inside)


def _fields(kind: Any) -> Iterator[tuple[str, str, Any]]:
    """Name, key and type of each field of a class."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        yield from ((field.name, field.name, hints[field.name]) for field in fields(kind))
    elif not kind.__struct_config__.array_like:
        yield from ((field.name, field.encode_name, field.type) for field in msgspec.structs.fields(kind))


def _meanings(kind: Any) -> dict[str, str]:
    """The docstring of each field, also of base classes; None is null."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        if one.__module__.startswith("paceline."):
            (node,) = ast.parse(dedent(inspect.getsource(one))).body
            assert isinstance(node, ast.ClassDef)
            found.update(fields_of(node))
    return {name: meaning.replace("None", "null") for name, meaning in found.items()}
