"""Pages of the P codes: what keeps a plan from being made.

Laid out as those of usage.
"""

PAGES: dict[str, str] = {
    "P01": """\
No such machine type, accelerator or link

What it means: A name is in no list that paceline has: neither an EC2 or `ml.` instance type, nor an accelerator under any of its usual
  spellings, nor a link. Nothing was computed. "saw" has the nearest names.
Why it matters: A plan for a type that does not exist would look like any other. Lists that go round name some that never did, such as
  ml.p3dn.48xlarge; the largest p3dn is 24xlarge.
What to do: `paceline instances` lists the types, `paceline instances --accelerators` the accelerators. A machine of your own is described
  in a TOML file (`--file FILE`) or read where it stands (`paceline instances --here`). A type that is newer than the catalogue is missing
  from it; describe it in a file meanwhile.
Source: paceline/catalog/data; docs/instances.md.
""",
    "P02": """\
A number that cannot be

What it means: An option counts or measures something, and its number is one that the thing cannot have: no hosts, a negative size, half a
  device, a batch below 1, a time of 0, devices that cannot be spread evenly over the hosts they were measured on.
Why it matters: Arithmetic takes any number. A plan for -4 hosts would come out as smoothly as one for 4.
What to do: Give the number in the unit that the option names: MiB and GiB are binary, Gbit/s are 10^9 bits, times are milliseconds where
  the option ends in -ms. `--measured-devices` counts the devices of all hosts together.
Source: `paceline plan --help`; docs/plan.md.
""",
    "P03": """\
The script failed before its first optimizer step

What it means: The trace ran the script, the file unchanged, and an exception of the script's own, or an exit with an error, came before any
  optimizer stepped. The message has the script's file and line, "saw" the line's text. Nothing was planned.
Why it matters: Where the script fails here it most likely fails on the machines that would be paid for.
What to do: Run the script by itself with the same arguments and mend what it reports. Arguments of the script stand after it. Where it
  needs data, a small sample of the same form is enough: one batch is loaded for real.
Source: paceline/trace/script.py; docs/tracing.md.
""",
    "P04": """\
The script's way depends on a value that a trace does not have

What it means: Models are traced on tensors without data. The script asked for something whose size only the data decide: the elements that
  a mask selects, the positions of what is not zero, the unique values of a computed tensor; or it repeats a `while` for as long as they
  say. The message has the file and line. Any other condition on such a value is no error: it is taken as stated among the assumptions,
  and the trace goes on.
Why it matters: A guessed size would give a guessed memory need, and nobody could see that it was one.
What to do: Trace the model without the script: `--model module:factory`, where the factory returns the model and a batch. Or give the
  numbers (`--parameters`, `--activation-mib-per-sample`, `--gflops-per-sample`).
Source: paceline/trace/functions.py; docs/tracing.md.
""",
    "P05": """\
No optimizer step was reached

What it means: The script ended without a step of any optimizer of torch.optim, or did not reach one in time (`--trace-timeout`), or this
  Python has no torch.
Why it matters: A plan is about one step: what it keeps in memory, computes and exchanges. Without one there is nothing to plan.
What to do: Name the script that trains, with arguments that make it train. Where the work before the first step is long, give it a small
  data set, or more time. An optimizer that is not a torch.optim.Optimizer is not seen: use `--model module:factory`.
Source: paceline/trace/steps.py; docs/tracing.md.
""",
    "P06": """\
The script cannot be traced

What it means: torch, or a library with kernels of its own, could not do an operation on tensors without data, or the tracing process ended
  by a signal. It is no failure of the script. "saw" has where it was raised. The same code refuses a saved trace that cannot be read.
Why it matters: Half a trace would give half of the memory need.
What to do: Trace the model without the script: `--model module:factory`; or save the trace anew (`--save-trace`); or give the numbers
  (`--parameters`, `--activation-mib-per-sample`, `--gflops-per-sample`).
Source: paceline/trace/script.py; docs/tracing.md.
""",
    "P07": """\
A machine file that cannot be used

What it means: The file given with `--file` cannot be read, is not TOML, or has an entry with an unknown field, a value of the wrong kind, a
  negative number, or an accelerator that is described nowhere. "saw" names the entry and the field.
Why it matters: A misspelt field would silently be unknown, and a plan would answer without it.
What to do: Write [[machine]] tables with the fields that the message lists, and [[accelerator]] for what the catalogue does not have.
  What you do not know is left out: it stays unknown. docs/instances.md has an example.
Source: paceline/catalog/machine_file.py.
""",
    "P08": """\
Not enough to answer from

What it means: What was given does not reach for an answer: no script, trace, measured step or size of a model; a measured step with several
  kinds of devices to choose from, and nothing that says which of them it was measured on; or conditions that no machine type meets.
Why it matters: A number would still come out, made of defaults alone, and nobody could tell it from one that rests on the job.
What to do: Take the option under "next". `paceline plan train.py` needs no number at all; one measured step (`--measured-step-ms`, or
  `--from-run` of a short run) gives narrower intervals; two sizes (`paceline rehearse`) the narrowest. What a plan could not look at,
  although it answered the rest, stands below it as not judged, with the option that would give it.
Source: docs/plan.md.
""",
    "P09": """\
A rehearsal that could not be made or read

What it means: `paceline rehearse` started the script at a size, and the script failed, made no optimizer step in time, or fewer than the
  warm-up and three more; or a rehearsal that was named is not there or not in a form that can be read. "saw" has the script's own reason.
Why it matters: A prediction needs steps that were made. What fails with one rank here fails with sixty-four elsewhere, and costs more.
What to do: `paceline why RUN` and `paceline logs RUN` look at the run that failed; "next" names it. Nothing of it is left running, and the
  sizes that were measured before it are kept in rehearsal.json. A script that needs long before its first step gets it with `--timeout`.
  Steps are seen where a torch optimizer steps in a process that paceline started.
Source: docs/rehearse.md.
""",
    "P10": """\
Nothing in the table keeps the limits

What it means: No row that may run and fits ends within `--deadline` or `--max-run`, or costs no more than `--budget`, with a probability of
  90 %. It is an answer, not an error: the table stands, the row that misses by least is named, and the exit code is 0.
Why it matters: A job that is planned to its expected time misses its limit every other time, and a job cut at its limit is paid for whole.
What to do: Look further: more hosts (`--hosts 1,2,4,8`), other types (`--where`), or the change that the plan names. Measure: a step of
  your own code narrows the interval, and a row may then be likely enough. Or move the limit. In scripts,
  `--fail-on P10` makes it exit code 1.
Source: docs/plan.md, How a row is chosen.
""",
    "P11": """\
A run that cannot be held against the plan

What it means: `--against RUN` found the run, but it has fewer steps than the warm-up of 5 and 3 more; the plan has no row, or several types
  of machines, of the run's hosts and ranks; the run had not as many ranks on each host; or the plan has no step time for that row.
Why it matters: A comparison of different shapes would explain the difference between them, not what the plan got wrong.
What to do: Ask for the machines that the run had: `--hosts` and `--devices-per-host` are taken from the run where they are left out, the
  type is named with `--instance`. Give the plan something to predict from: the script, `--rehearsal latest`, or one measured step.
Source: docs/plan.md.
""",
}
