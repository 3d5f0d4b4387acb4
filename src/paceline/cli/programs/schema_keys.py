"""What every key of every JSON schema means. docs/schemas.md is made from this table; a test holds it to the documents themselves.

One line is one key: its path, two spaces or more, its meaning. `[]` stands for the elements of a list, `{name}` for any key of an object.
`= module:Class` in place of the meaning: the keys below that path are the fields of this class, and their meanings are its docstrings;
`without FIELD` leaves one out.
A line without a meaning takes that of `SAME`, so that a fact has one name and one meaning in all schemas.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.cli.programs.api_page import definition_of, fields_of

SAME = {
    "run_id": "Id of the run.",
    "name": "Name of the job, `--name` or the script's own.",
    "status": "`InProgress`, `Completed`, `Failed`, `Stopping` or `Stopped`.",
    "secondary_status": "The phase of a run that lasts, such as `Training`; else how it ended, such as `MaxRuntimeExceeded`.",
    "exit_code": "Exit code of `paceline run`; null while it lasts, or if nobody saw its end.",
    "reason": "Why, in one sentence.",
    "directory": "The directory of the recording.",
    "command": "The command line, one word an element, without secrets.",
    "engine": "The engine that has the job.",
    "started_ns": "When it started, Unix time in ns.",
    "finished_ns": "When it ended, Unix time in ns; null: it lasts, or its agent left no word.",
    "t_ns": "Unix time in ns.",
    "first_host": "Name of the first host.",
    "agent_pid": "Process id of the agent on that host.",
    "paceline_version": "Version of paceline.",
    "host": "Name of the host in the job.",
    "hosts": "Names of the hosts.",
    "rank": "Global rank.",
    "ranks": "Global ranks.",
    "attempt": "The attempt, from 0.",
    "code": "A code with a page: `paceline help CODE`.",
    "wall_seconds": "Time from the start of the run to its end, or to now.",
    "step": "Newest step of the rank that is furthest behind.",
    "step_seconds": "Duration of one step.",
    "samples_per_second": "Samples of all ranks in a second, if batches are full; null where other loaders than that of steps are read.",
    "ranks_here": "Number of ranks that have arrived; null once the run is over.",
    "ranks_wanted": "Number of ranks that the job needs.",
    "spread": "The slowest rank's own time of a step over the median rank's.",
    "exposed_communication_fraction": "Fraction of the step: communication that no computation hides.",
    "exposed_communication_seconds": "Communication that no computation hides.",
    "loading_seconds": "Waiting for data.",
    "mean_step_seconds": "Mean duration of all measured steps.",
    "step_count": "Number of steps.",
    "restart_count": "How often the ranks were started again.",
    "resume_count": "How many of these restarts went on from kept state.",
    "lost_step_count": "Steps that are made again because of these restarts; null: it is not known.",
    "startup_seconds": "Time from the start of the run to its first step.",
    "not_judged": "What could not be looked at, and why.",
    "warnings": "What makes the answer doubtful.",
    "tier": "0 nothing was measured, 1 one measured step, 2 several sizes.",
    "efficiency_fraction": "Speed of one device over that of one at the smallest size.",
    "terms_seconds": "The parts of the step, which add up to it.",
    "mad_seconds": "Median absolute deviation.",
    "program": "Script and arguments.",
    "notes": "What was assumed or failed.",
    "saw": "What was seen, and what was expected.",
    "next": "One command or one edit.",
    "more": "Where to read more.",
    "what": "What happened, with the name of the thing.",
    "size_bytes": "Size in bytes.",
    "paceline": "Paceline itself.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """One JSON schema."""

    name: str
    """Its name with its number, such as paceline.ps/2."""
    where: str
    """Who prints it, or which file holds it."""
    keys: str
    """A line for each key, in the form that this module describes."""
    page: str = ""
    """The page that says more, with its anchor."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a schema."""

    path: str
    """Its path, such as runs[].run_id."""
    meaning: str
    """What it holds, with its unit."""


_FINDING = "paceline.findings:CauseFinding"

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
world.devices[].rank
world.devices[].hostname           Name of the host in the job.
world.devices[].pid                Process id on that host.
world.devices[].device             Number of the device.
world.devices[].device_hex         PCI address of the device.
world.devices[].device_info        Name of the device.
results                            A row for each size, with nccl-tests' keys and units.
results[].size                     Bytes, all ranks' parts together.
results[].count                    Elements of the call's argument.
results[].type                     Type of the elements.
results[].redop                    Reduction.
results[].root                     Root as text; -1 for none.
results[].actual_iterations        Number of iterations; fewer than asked for if the size took too long.
results[].out_of_place             Times out of place.
results[].in_place                 Times in place.
results[].{place}.time             Time in us, as `-a` combines the ranks.
results[].{place}.alg_bw           Algorithm bandwidth in 10^9 bytes a second.
results[].{place}.bus_bw           Bus bandwidth in 10^9 bytes a second.
results[].{place}.nwrong           Wrong elements; null: not checked.
results[].{place}.median_us        Median over the iterations, us.
results[].{place}.mad_us           Median absolute deviation, us.
results[].{place}.min_us           Shortest iteration, us.
results[].{place}.max_us           Longest iteration, us.
results[].{place}.iterations       Number of iterations.
left_out                           Measurements that were left out.
left_out[].what                    Size, or type and reduction.
left_out[].reason                  Why, in the backend's own words.
out_of_bounds                      The check of the data.
out_of_bounds.count                Wrong elements.
out_of_bounds.okay                 Whether there is none.
average_bus_bandwidth              Over all rows.
average_bus_bandwidth.bandwidth    Bus bandwidth in 10^9 bytes a second.
average_bus_bandwidth.okay         Always `unchecked`.
pairs                              With `--pairs`: a sendrecv between each two members.
pairs[].a                          One member, a host or a rank.
pairs[].b                          The other member.
pairs[].size_bytes                 Size of the large message.
pairs[].seconds                    Time of the large message.
pairs[].mad_seconds
pairs[].gb_per_second              10^9 bytes a second in each direction.
pairs[].latency_seconds            Time of the smallest message.
pairs[].iterations                 Number of iterations.
slow                               The slow ones; null: too few pairs to judge.
slow[].members                     One member: slow to all others. Two: their pair is slow.
slow[].between                     Groups; every pair between two of them is slow.
slow[].worst                       Slowest pair, 10^9 bytes a second.
slow[].others                      Median of the other pairs, 10^9 bytes a second.
strategies                         Of `bench step`: the strategies.
strategies[].gradients             Name, as for `--gradients`.
strategies[].exact                 Whether its average is exact.
strategies[].step_seconds          Duration of one step; null: it failed.
strategies[].mad_seconds
strategies[].step_count
strategies[].times_plain           How many times as fast as plain DDP.
strategies[].exposed_communication_fraction
strategies[].run_ids               Ids of its runs, until they are deleted.
strategies[].said                  What the ranks reported about the strategy.
strategies[].failure               Why it failed; empty: it did not.
take                               The strategy to take.
figures                            What `--baseline FILE` reads.
figures[].key                      What must be equal in two results that are compared.
figures[].key.{name}               One of these values.
figures[].points                   What was measured, by size, pair or strategy.
figures[].points.{name}            [seconds, median absolute deviation in seconds, number of measurements].
comparisons                        Each question, compared with earlier results.
comparisons[].name                 Which question; empty if there is only one.
comparisons[].comparison           null: nothing to compare with.
comparisons[].comparison.since_ns  When the newest earlier result was measured, Unix time in ns.
comparisons[].comparison.results   Number of earlier results.
comparisons[].comparison.worse     Labels of the figures that became slower.
comparisons[].comparison.confirmed  Whether these were measured twice.
comparisons[].comparison.figures   The figures that could be judged.
comparisons[].comparison.figures[].label  Size, pair or strategy.
comparisons[].comparison.figures[].seconds  Now.
comparisons[].comparison.figures[].usual_seconds  Before.
comparisons[].comparison.figures[].slower_fraction  By how much it is slower.
comparisons[].comparison.figures[].margin_fraction  Up to here it may be chance.
comparisons[].comparison.not_judged  Labels of figures that are too noisy or new.
""",
    ),
    Schema(
        name="paceline.bench.baseline/1",
        where="The results that `paceline bench` keeps for this user, one file for each question",
        page="bench.md",
        keys="""
key                  What must be equal in two results that are compared.
key.{name}           One of these values.
results              The kept results, the oldest first.
results[].made_ns    When it was measured, Unix time in ns.
results[].points     What was measured, by size, pair or strategy.
results[].points.{name}  [seconds, median absolute deviation in seconds, number of measurements].
""",
    ),
    Schema(
        name="paceline.resume/1",
        where="`paceline resume --json`",
        page="running.md#resume-preview",
        keys="""
can_resume           Whether a job with --resume auto goes on after a killed rank, by the look of it; null: it cannot be seen.
loops                The loops that go on, in the order of the files and of their text.
loops[].file         The source file.
loops[].line         The line in that file, from 1.
loops[].text         That line.
loops[].trains       Whether it looks like the training loop.
loops[].by_hand      Whether the script names it with `steps`.
findings             What hinders a resume.
findings[].code
findings[].severity  `error`, `warning` or `notice`.
findings[].confidence  `high`, `likely` or `unclear`.
findings[].what
findings[].saw
findings[].next
findings[].more
findings[].file      The source file; null: it is about no file.
findings[].line      The line in that file, from 1; null: it is about no line.
diffs                Each file with such loops as it is and as it runs, a unified diff.
not_judged
""",
    ),
    Schema(
        name="paceline.resume_export/1",
        where="`paceline resume --export --json`",
        page="running.md#resume-preview",
        keys="""
file                   The file that was written.
size_bytes             Its size.
run_id                 The run that saved the state.
step                   The step after which the state was taken.
saved_ns               When it was saved.
damaged_steps          Newer saved steps, which are damaged and passed over.
models                 The state dicts of models, by the names of the script's variables.
models[].name          The variable.
models[].tensor_count  Number of tensors in its state dict.
optimizers             Names of the optimizers whose state dicts are in the file.
schedulers             Names of the schedulers whose state dicts are in the file.
values                 Names of the other variables that are in the file: plain values and tensors.
left_out               Names of variables that hold anything else.
""",
    ),
    Schema(
        name="paceline.checks/1",
        where="`paceline check --json`",
        page="checks.md",
        keys="""
passed               Whether nothing was found that stops the job.
counts               Number of findings of each severity.
counts.error         Findings that stop the job.
counts.warning       Findings that do not.
counts.notice        What is only worth knowing.
findings             What was found.
ignored              What a comment in the script switches off.
{list}[].code
{list}[].severity    `error`, `warning` or `notice`.
{list}[].confidence  `high`, `likely` or `unclear`.
{list}[].what
{list}[].saw
{list}[].next
{list}[].more
{list}[].file        The source file; null: it is about no file.
{list}[].line        The line in that file, from 1.
silent               Codes of checks that found nothing.
not_judged           Checks that could not look.
not_judged[].code
not_judged[].missing  The fact that the check lacked.
""",
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
        keys="""
paceline
paceline.version             Version of paceline.
packages                     What paceline depends on.
packages.{name}              Version; null: not installed.
python                       The interpreter of the ranks.
python.version               Its version.
python.executable            Its path.
torch                        Its torch.
torch.version                Version; null: not known.
torch.cuda                   Version of CUDA that it was built for; null: none.
torch.reason                 Why the version is not known.
torch.not_tried              Says that nobody has run paceline on this torch; empty: somebody has, or the version is not known.
torch.features               What paceline uses of it.
torch.features[].name        Name of the feature.
torch.features[].for         What paceline uses it for.
torch.features[].found       Whether it is there; null: not looked at.
torch.features[].reason      Why it was not looked at.
system                       The operating system.
system.os                    Its name and version.
system.kernel                Version of the kernel.
system.architecture          Of the processor, such as `x86_64`.
system.libc                  The C library and its version.
cpu                          The processors.
cpu.model                    Name of the model.
cpu.count                    Number of CPUs of the host.
cpu.usable_count             Number of CPUs that this process may use.
cpu.quota_cpus               CPUs that the control group allows; null: no quota.
cpu.cgroup_version           1 or 2; null: no control group was seen.
memory                       The memory.
memory.total_bytes           Of the host.
memory.available_bytes       What is left of it.
memory.used_bytes            What is in use.
memory.swap_used_bytes       Swap in use.
memory.cgroup_limit_bytes    What the control group allows; null: no limit.
memory.cgroup_used_bytes     What the control group uses.
memory.cgroup_version        1 or 2; null: no control group was seen.
memory.shm                   /dev/shm; null: it is not there.
memory.shm.total_bytes       Its size.
memory.shm.available_bytes   What is left of it.
namespaces                   Network namespaces, for `--local-hosts`.
namespaces.allowed           Whether this user may make them.
namespaces.reason            Why not.
gpus                         The GPUs.
gpus.devices                 Each GPU; null: NVML could not be asked.
gpus.devices[]               = paceline.probes.gpus:Gpu
gpus.reason                  Why NVML could not be asked.
gpus.visible_count           Number of GPUs that a rank would see; null: not known.
gpus.visible_reason          Why that many.
interfaces                   The network interfaces.
interfaces[].name            Name of the interface.
interfaces[].up              Whether it is up; null: not known.
interfaces[].addresses       Its IPv4 and IPv6 addresses.
interfaces[].speed_mbps      10^6 bits a second; null: not known.
interfaces[].mtu_bytes       Largest packet.
limits                       Limits that the ranks inherit; null: no limit.
limits.{name}                One of them; a name that ends with `_bytes` has bytes.
variables                    Environment variables that concern a job, without secrets.
variables.{name}             Value of one of them.
""",
    ),
    Schema(
        name="paceline.error/1",
        where="Every verb with `--json`, in place of its answer, if paceline refuses or fails",
        page="codes.md",
        keys="""
code
exit_code   Exit code of this command.
what
saw
next
more
""",
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
code
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
instances[].sources.{name}                 Source of one figure.
instances[].accelerator_figures            Its accelerator; null: none, or not in the catalogue.
instances[].accelerator_figures            = paceline.catalog.types:Accelerator
instances[].spot                           Spot prices.
instances[].spot[].zone                    Availability zone.
instances[].spot[].usd_per_hour            Price at the time of the snapshot.
instances[].spot[].source                  Where it is from.
instances[].support                        Kind of job -> whether the type suits it.
instances[].support.{kind}                 Whether the type suits one kind of job.
instances[].support.{kind}.allowed         Whether such a job can run there; null: not judged.
instances[].support.{kind}.reasons         Facts of the hardware.
instances[].support.{kind}.reasons[].text     The fact.
instances[].support.{kind}.reasons[].forbids  true: the job cannot run; false: it can, with a cost; null: not known.
instances[].support.{kind}.reasons[].numbers  Figures of the fact.
instances[].support.{kind}.reasons[].numbers.{name}  One figure.
instances[].support.{kind}.nearest         Types that suit, the most similar first.
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
step
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
lines[].attempt
lines[].stream                     `out` or `err`.
lines[].t_ns
lines[].text                       The line.
left_out                           What was not read, or is not shown.
""",
    ),
    Schema(
        name="paceline.logs/2",
        where="`paceline logs --json`, one object a line",
        keys="""
run_id
host
attempt
rank
stream    `stdout` or `stderr`.
t_ns      When the line came, Unix time in ns, to a second; null: not recorded.
text      The line.
""",
    ),
    Schema(
        name="paceline.plan/2",
        where="`paceline plan --json`",
        page="plan.md",
        keys="""
rows                       A row for each kind and number of machines.
rows[].name                The machine type, or what the question calls these machines.
rows[].instance_type       Instance type; null: options describe the machines.
rows[].accelerator         Name of the accelerator; null: not known.
rows[].hosts               Number of hosts.
rows[].devices             Number of devices of all hosts.
rows[].devices_per_host    Number of devices of each host.
rows[].zones               Number of availability zones.
rows[].step_seconds        Duration of one step; null: not known.
rows[].step_seconds_low    Lower end of the interval.
rows[].step_seconds_high   Upper end of the interval.
rows[].efficiency_fraction
rows[].tier
rows[].terms_seconds
rows[].terms_seconds.{name}  `compute`, `exposed_communication`, `multi_device_tax`, `loading`.
rows[].memory              Whether a step fits into a device.
rows[].memory.verdict      `fits`, `grey zone`, `does not fit` or `not judged`.
rows[].memory.need_bytes   What the tensors take.
rows[].memory.capacity_bytes  What the driver reports.
rows[].memory.parts_bytes  What takes it.
rows[].memory.parts_bytes.{name}  Parameters, gradients, buckets, optimizer, activations, other.
rows[].memory.largest_batch  Samples of a microbatch that still fit.
rows[].memory.missing      The fact without which it was not judged; null: none.
rows[].samples_per_second  Of all devices together.
rows[].step_count          Number of steps of the job.
rows[].hours               To the end of the job, start-up included.
rows[].hours_low           Lower end of the interval.
rows[].hours_high          Upper end of the interval.
rows[].within_probability  That the job ends within `--max-run`; null: not asked, or not judged.
rows[].usd                 What the job costs.
rows[].usd_low             Lower end of the interval.
rows[].usd_high            Upper end of the interval.
rows[].usd_per_hour        All hosts, as paid.
rows[].spot_usd            The same hours at spot prices.
rows[].spot_zone           The zone of that price.
rows[].sagemaker_usd       The same hours at SageMaker's prices.
rows[].zone_traffic_usd    Of `usd`, traffic between zones.
rows[].refused             Why the job may not run there.
rows[].warnings
rows[].not_judged
rows[].formulas            With `--explain`: every formula.
rows[].formulas[]          = paceline.planner.answer:Formula
rows[].formulas[].values.{name}  Value of one name.
warnings
choice                     The machines to take.
choice.row                 Index into `rows`; null: none.
choice.name                Its name.
choice.hosts               Its number of hosts.
choice.reason              Why this one, or why none.
choice.code                `P10` if no row meets the limits; else null.
choice.nearest_row         Index of the row that misses the limits least.
advice                     Changes of the job that gain.
advice[].kind              `precision`, `buckets`, `accumulation`, `zones`, `hosts`, `type` or `memory`.
advice[].change            The change, in words.
advice[].how               How it is made.
advice[].gain_fraction     By how much less a sample takes; null: the gain is that the step fits at all.
advice[].certain           Whether the gain is beyond the intervals.
advice[].note              What else it changes.
advice[].step_seconds_before  Duration of one step as it is.
advice[].step_seconds_after   Duration of one step with the change.
advice[].usd_before        Cost as it is.
advice[].usd_after         Cost with the change.
advice[].memory_after      Verdict on the memory with the change.
assumptions                What was taken for granted.
assumptions[]              = paceline.planner.workload:Assumption
not_judged
against                    With `--against`: a recorded run beside the plan.
against.run_id
against.step_count
against.step_seconds       Duration of one step.
against.mean_step_seconds
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
against.reasons[]          = paceline.planner.against:DifferenceReason
against.not_judged
""",
    ),
    Schema(
        name="paceline.prune/2",
        where="`paceline ps --prune --json`",
        keys="""
deleted               Whether they were deleted; false with `--dry-run`.
runs                  The runs that have ended and may go.
runs[].run_id
runs[].directories    The directories of all its tries, the newest first.
runs[].age_seconds    Time since its newest file was written.
runs[].size_bytes     Room on the disk.
""",
    ),
    Schema(
        name="paceline.ps/2",
        where="`paceline ps --json`",
        keys="""
runs                    The runs, the newest first.
runs[].run_id
runs[].name
runs[].engine           The engine that has the job; null: it was started by hand.
runs[].status
runs[].secondary_status
runs[].exit_code
runs[].reason
runs[].state            running, waits, stands still, hangs, stopping, done, stopped, failed, dead or unknown.
runs[].stands_still_since_ns  Of a run that lasts; null: it makes steps.
runs[].finding          What explains the state, as it was told; null: nothing is known.
runs[].finding          = paceline.findings:CauseFinding
runs[].ranks_here
runs[].ranks_wanted
runs[].step
runs[].step_seconds
runs[].restart_count
runs[].resume_count
runs[].lost_step_count
runs[].started_ns
runs[].finished_ns
runs[].first_host
runs[].agent_pid
runs[].directory
runs[].command
""",
    ),
    Schema(
        name="paceline.rehearsal/2",
        where="`paceline bench --rehearse --json`, its `rehearsal.json`; `paceline plan --rehearsal FILE` reads it",
        page="rehearse.md",
        keys="""
id                  Id of the rehearsal.
program
sizes               The sizes that were run.
sizes[]             = paceline.planner.rehearsal:RehearsedSize
sizes[].measurement = paceline.planner.workload:Measurement
room                = paceline.planner.rehearsal:Slots
probe               = paceline.planner.rehearsal:Probe
script_hash         SHA-256 of the script as it was run; null: it is not a file.
machine             The machine's own name.
started_ns
notes
file                Path of `rehearsal.json`; not in the file itself, as the next.
predictions         The sizes that were not run.
predictions[].hosts             Number of hosts.
predictions[].devices           Number of ranks.
predictions[].devices_per_host  Ranks of each host.
predictions[].step_seconds
predictions[].step_seconds_low  Lower end of the interval.
predictions[].step_seconds_high Upper end of the interval.
predictions[].efficiency_fraction
predictions[].tier
predictions[].terms_seconds
predictions[].terms_seconds.{name}  One part of the step.
predictions[].crowding          Ranks for each GPU or CPU of this machine.
predictions[].here_seconds      The step on this machine, where ranks take turns; null: each has room.
predictions[].warnings
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
first_host
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
        keys="""
name             = paceline.sagemaker_local.records:JobRecord
request.*        The fields of CreateTrainingJob.
state.*          Status, times in seconds since 1970, and transitions of the job.
tags.{name}      Value of one tag.
metrics[].*      The fields of FinalMetricDataList.
""",
    ),
    Schema(
        name="paceline.saved_state/2",
        where="`state/step-STEP/manifest.json` of a recording, or below the URL of the checkpoints",
        page="running.md#resume-preview",
        keys="""
manifest                             What belongs to the step.
manifest.step                        The step after which the state was taken.
manifest.saved_ns                    When it was saved.
manifest.job                         The job.
manifest.job.run_id                  The run that saved it.
manifest.job.script                  Path of the script, or the name of the module.
manifest.job.script_sha256           SHA-256 of the script; empty: it is a module.
manifest.job.hash_seed               PYTHONHASHSEED of the ranks.
manifest.python                      Version of the ranks' Python.
manifest.torch                       Version of the ranks' torch.
manifest.ranks                       What was saved of each rank, in their order.
manifest.ranks[].tensors             The file with the tensors, in the safetensors format.
manifest.ranks[].tensors.name        Name beside the manifest.
manifest.ranks[].tensors.size_bytes  Size.
manifest.ranks[].tensors.sha256      SHA-256.
manifest.ranks[].plain               The file with the plain values: tagged values in msgpack.
manifest.ranks[].plain.name          Name beside the manifest.
manifest.ranks[].plain.size_bytes    Size.
manifest.ranks[].plain.sha256        SHA-256.
manifest.ranks[].batch_crc           Checksum of the batch that was taken next; null: it was not known yet.
sha256                               SHA-256 of the text of `manifest`.
""",
    ),
    Schema(
        name="paceline.stack/2",
        where="`paceline stack --json`",
        keys="""
run_id
ended                 Whether the run has ended; the snapshots are then the last ones.
groups                Ranks at the same lines, the largest group first.
snapshots             One for each rank.
snapshots[]           = paceline.diagnosis.snapshots:RankSnapshot without at_ns
snapshots[].t_ns      When it was taken, Unix time in ns.
snapshots[].thread_states.{name}  Number of threads in one state.
snapshots[].environment.{name}    Value of one variable.
snapshots[].stacks[]              = paceline.diagnosis.snapshots:ThreadStack
snapshots[].stacks[].frames[]     = paceline.diagnosis.snapshots:Frame
snapshots[].children[]            = paceline.diagnosis.snapshots:Child
snapshots[].children[].stack[]    = paceline.diagnosis.snapshots:Frame
snapshots[].raised                = paceline.facts:RankError
snapshots[].sockets[]             = paceline.diagnosis.snapshots:Socket
not_judged
""",
    ),
    Schema(
        name="paceline.stop/2",
        where="`paceline stop --json`",
        keys="""
run_id
accepted    Whether the run was told to end, and accepted it.
now         Whether it was to end without grace.
ended       Whether it had ended already.
status
exit_code
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
job               = paceline.launch.engines.submission:Submission
job.file.*        See [paceline.job/1](#pacelinejob1).
job.package       = paceline.launch.engines.submission:Package
job.environment.{name}     `***`: values may be secrets.
job.engine_options.{name}  Value of one option.
job.platform.*             Fields of CreateTrainingJob.
""",
    ),
    Schema(
        name="paceline.submitted/2",
        where="`paceline submit --json`",
        page="engines.md",
        keys="""
run_id            = paceline.views.submit:Taken
""",
    ),
    Schema(
        name="paceline.compare/1",
        where="`paceline compare --json`",
        keys="""
first_run_id      Id of the run that is compared with.
second_run_id     Id of the run that is compared.
first_state       Its state, as in [paceline.ps/2](#pacelineps2).
second_state      That of the other one.
answer_text       The answer as a sentence.
answer            `slower`, `faster`, `same` or `cannot tell`: the second run beside the first.
step              A mean step.
step.*            As for a part.
parts             What a mean step is made of.
parts[]           = paceline.diagnosis.run_comparison:PartChange
mostly            The part that has most of the difference; null: no part has, or there is no difference.
before_steps      Steps of the first run that are compared.
after_steps       Steps of the second run that are compared.
differences       What else differs.
differences[]     = paceline.diagnosis.run_comparison:RunDifference
""",
    ),
    Schema(
        name="paceline.metrics/1",
        where="`paceline report --format prometheus --json`",
        keys="""
run_id
metrics                             What `paceline report --format prometheus` prints as text.
metrics[].name                      Name of the metric.
metrics[].type                      `counter` or `gauge`.
metrics[].help                      What it is.
metrics[].samples                   Its values.
metrics[].samples[].labels          The labels of a value.
metrics[].samples[].labels.*        Text of a label.
metrics[].samples[].value           The value.
""",
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
identity.finished_ns
identity.paceline_version
identity.hosts
identity.ranks_wanted
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
forecast                           When the job will be done; null: not known.
forecast.*                         Fields of the event `forecast` of a [recording](recording.md).
forecast_text                      The same as a sentence.
told_live                          Findings of which something else was told while the run lasted.
told_live[].code
told_live[].ranks
told_live[].live                   What was told first: confidence, and since which step.
told_live[].now                    The same as the recording is judged now.
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
lateness.rows[].rank
lateness.rows[].host
lateness.rows[].share              How much later than the first rank it came to the collectives, as a share of a step.
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
        where="`paceline run --json` on stderr, `--json-file FILE`",
        page="running.md",
        keys="""
run_id
status
secondary_status
exit_code
reason
wall_seconds
step_count
step_seconds                   Duration of one step: the median of steady steps.
steady_step_count              Number of these steps.
samples_per_second
in_steps_seconds               Time of all steps: the four below together.
compute_seconds                In steps: computation.
loading_seconds                In steps: waiting for data.
exposed_communication_seconds  In steps: communication that no computation hides.
checkpoint_seconds             In steps: saving checkpoints.
lost_seconds                   Time outside steps: the three below together.
startup_seconds
restarts_seconds               Between attempts.
end_seconds                    After the last step.
restart_count
resume_count
lost_step_count
slowest                        The ranks that the others wait for; null: none for certain.
slowest.host                   Host of the first of them.
slowest.rank                   The first of them.
slowest.spread
slowest.ranks                  Their global ranks.
slowest.hosts                  Names of their hosts.
slowest.waited_seconds         By which they delay each step.
slowest.waited_seconds_low     Lower end of the interval.
slowest.waited_seconds_high    Upper end of the interval.
slowest.step_seconds
gradients                      How gradients were exchanged, in words.
network                        The network of local hosts; null: this machine's own.
network.asked                  = paceline.emulate.network:Network
network.zones                  Hosts of each zone.
network.delivered              = paceline.emulate.network:Delivered
network.delivered.paths[]      = paceline.emulate.network:DeliveredPath
not_judged
findings                       Why the run ended as it did.
findings[]                     = paceline.findings:CauseFinding
directory
""",
    ),
    Schema(
        name="paceline.top/2",
        where="`paceline top --json`",
        keys="""
run_id
t_ns               Now, Unix time in ns.
status
secondary_status
reason
state              running, waits, stands still, hangs, stopping, done, stopped, failed, dead or unknown.
stands_still_since_ns  Of a run that lasts; null: it makes steps.
finding            What explains the state, as it was told; null: nothing is known.
finding            = paceline.findings:CauseFinding
wall_seconds
step
step_seconds
samples_per_second
ranks_here
ranks_wanted
spread
restart_count
resume_count
lost_step_count
ranks              Each rank.
ranks[].host
ranks[].rank
ranks[].step       Its newest step.
ranks[].step_seconds
ranks[].own_seconds  Duration of one step without communication.
ranks[].loading_fraction  Fraction of the step: waiting for data.
ranks[].exposed_communication_fraction
ranks[].checkpoint_fraction  Fraction of the step: saving checkpoints.
hosts              Each host, at its last sample.
hosts[]            = paceline.views.host_load:HostUsage
hosts[].mean       Of a run that has ended: means over the run.
hosts[].mean       = paceline.views.host_load:HostUsage
hosts[].peak       Of a run that has ended: the largest values.
hosts[].peak       = paceline.views.host_load:HostUsage
not_judged
""",
    ),
    Schema(
        name="paceline.trace/1",
        where="`paceline plan --save-trace FILE`; `--trace FILE` reads it",
        page="tracing.md",
        keys="""
outcome            `traced` or `failed`.
name               = paceline.planner.workload:Workload
operations[]       = paceline.planner.workload:OperationCounts
assumptions[]      = paceline.planner.workload:Assumption
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
saw
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
        keys="""
run_id                     Id of the run; null: logs were read.
status                     As for `paceline ps`; null: logs were read, or another host's directory alone does not say it.
secondary_status
exit_code
finished_ns
findings                   The causes, the surest first.
findings[]                 = paceline.findings:CauseFinding
earlier                    Findings that were reported while the run lasted and do not hold now.
earlier[].attempt
earlier[].after_seconds    Time from the start of the run; null: not known, or of an earlier attempt.
earlier[].reason           Why it does not hold; empty: it is of an earlier attempt.
earlier[]                  = paceline.findings:CauseFinding
checked                    What paceline check found before the run.
checked[].code
checked[].place            FILE:LINE; empty: it is about the command line.
checked[].what
restart_count              How often the ranks were started again; null: logs were read.
resume_count
lost_step_count
not_judged
""",
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
    seen: set[str] = set()
    for key in _lines(schema.keys):
        if key.path not in seen:
            seen.add(key.path)
            yield key


def _lines(text: str) -> Iterator[Key]:
    for line in text.strip().splitlines():
        path, _, meaning = (part.strip() for part in line.strip().partition(" "))
        if meaning.startswith("= "):
            yield from _fields(path, meaning.removeprefix("= "))
        else:
            yield Key(path, meaning or SAME[path.rpartition(".")[2]])


def _fields(path: str, definition: str) -> Iterator[Key]:
    """The fields of a class as keys below a path; the path of a whole document is the name of its first field."""
    definition, _, left_out = definition.partition(" without ")
    module, _, name = definition.partition(":")
    found = definition_of(module, name)
    assert found is not None and isinstance(found.node, ast.ClassDef), f"{module} has no class {name}"
    fields = [(field, meaning) for field, meaning in fields_of(found.node) if field != left_out]
    is_document = path == fields[0][0]
    if not (is_document or path.endswith("]")):
        yield Key(path, (ast.get_docstring(found.node) or "").partition("\n")[0])
    for field, meaning in fields:
        yield Key(field if is_document else f"{path}.{field}", meaning.replace("None", "null"))
