"""Pages of the X codes: gradient exchange, backends, emulated networks, `paceline bench`.

Laid out as those of usage.
"""

PAGES: dict[str, str] = {
    "X01": """\
A collective, type or reduction that the bench does not know

What it means: The word is none of the collectives (all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, sendrecv), nor `step`; or
  `-d`, `-o` or `-r` names a type, a reduction or a root that there is not. Nothing was started. nccl-tests falls back to float and sum.
Why it matters: A table of another operation than the one that was meant looks like any other.
What to do: Take the word shown under "next". `-d all`, `-o all` and `-r all` measure each of them in turn. torch's collectives have no
  uint32, uint64 or mulsum.
Source: nccl-tests src/common.h, ncclstringtotype, ncclstringtoop; paceline/planner/bandwidth.py.
""",
    "X02": """\
Sizes that cannot be measured

What it means: A size is written as bytes or with K, M or G, which are binary (`-b 8 -e 128M`); the smallest must not be above the largest,
  and one size leads to the next either by a factor (`-f 2`) or by bytes (`-i 1M`), in at most 4096 steps.
Why it matters: nccl-tests reads "12x" as 12; a bench of a size that was not meant is compared with the wrong one later.
What to do: Write the sizes as shown under "next". `-e` is 128M where it is not given, also beside a larger `-b`.
Source: nccl-tests src/common.cu, parsesize.
""",
    "X03": """\
The backend is not there, or cannot do this

What it means: `--backend` names one that the ranks' torch was not built with, or that does not start here (nccl without a GPU for each
  rank), or the backend refused every call of this collective with this type and reduction. "saw" has torch's own words.
Why it matters: A fallback to another backend would be measured and believed.
What to do: `paceline env --torch` shows what this torch has. gloo and paceline work on every machine.
Source: paceline/worker/bench_group.py; torch.distributed.Backend.
""",
    "X04": """\
One rank alone has nobody to exchange with

What it means: The bench was asked for one host with one rank.
Why it matters: The time of a collective of one rank is that of a function call; as a bandwidth it would be the best figure of all.
What to do: `--nproc-per-node N` (or nccl-tests' `-g N`) for ranks of one host, `--local-hosts N` for hosts on this machine,
  `--nnodes N --node-rank I --master-addr HOST` on each host of a cluster.
Source: nccl-tests doc/PERFORMANCE.md: the factors are 0 for one rank.
""",
    "X05": """\
The ranks ended before the bench had its answer

What it means: A rank failed, was killed, or waited longer than `--timeout` for a collective; of `bench step`, the script itself does not
  run or makes too few steps. Rows that came before are printed; they are not kept as a baseline. Exit code 3.
Why it matters: What broke under a bench breaks under a job too.
What to do: The command under "next" says which rank was first and why. Where the network is only slow, give more time (`--timeout 10m`)
  or smaller sizes (`-e 16M`).
Source: paceline/cli/bench_run.py, bench_step.py.
""",
    "X06": """\
There is nothing to compare with

What it means: `--baseline` names a file that cannot be read or holds another question (collective, type, reduction, root, script, no common
  size); or `--fail-on worse` was asked and no result of this question is kept yet, or every figure differs too much from one iteration to
  the next. The second has exit code 3: it is not known, and that is not the same as not worse.
Why it matters: A check that passes because it could not look is worse than none.
What to do: Run the bench once while the cluster is well: its result is kept. `-J FILE` writes a result that `--baseline FILE` reads. More
  iterations (`-n 100`) make figures that can be judged.
Source: paceline/planner/worsening.py; docs/bench.md.
""",
    "X10": """\
No such way to average gradients

What it means: --gradients, or `use` in a script, was given a word that is no strategy, no wrapper, or no parameter of the part that it
  stands behind. Nothing was started. "saw" has the names that there are, "next" the nearest one.
Why it matters: A strategy that is silently left out would be measured, and believed, as if it had been there.
What to do: Take a name of docs/exchange.md: a strategy, wrappers behind a plus, parameters behind a colon, as in `direct+bf16` or
  `powersgd:rank=4`.
Source: paceline/planner/strategies.py; docs/exchange.md.
""",
    "X11": """\
Parts of a strategy that do not go together

What it means: The name has two parts that decide the same thing, such as two ways for gradients to travel, two encodings of them, or
  local_sgd, which exchanges parameters, with a wrapper that rounds gradients. `auto` stands alone.
Why it matters: One of the two would have no effect, and nobody would see which.
What to do: Leave one of them out. "saw" names the two.
Source: paceline/planner/strategies.py; docs/exchange.md.
""",
    "X12": """\
--allow-lossy stands without --gradients auto

What it means: `--allow-lossy` lets `--gradients auto` choose a strategy that changes the gradients (`bf16`, `int8`). No `auto` was asked
  for, so there is nobody who chooses. Nothing was started.
Why it matters: A strategy that is named is taken as it is, a lossy one too: whoever writes `--gradients direct+int8` has said so. An option
  that does nothing would look as if it did.
What to do: `paceline run --gradients auto --allow-lossy ...`, or name the strategy and leave `--allow-lossy` out.
Source: paceline/cli/run_job.py; docs/exchange.md.
""",
    "X13": """\
A strategy stepped aside

What it means: `--gradients` named a strategy, and a model of the script exchanges its gradients in its own way all the same. The notice
  says which and why: the script registered a communication hook of its own, the model lies partly on a device and partly not, its
  process group has one rank, it uses DDP's own mixed precision or delayed all-reduce, or it is no DistributedDataParallel at all (FSDP,
  DeepSpeed), which shards what the strategies would average.
Why it matters: What a script sets up itself is meant. The result is the same as without `--gradients`; only the time is not the hoped one.
What to do: Nothing, where the script's own way is wanted. Otherwise take the hook out of the script, or make the model a plain
  DistributedDataParallel.
Source: paceline/worker/gradients.py; docs/exchange.md.
""",
    "X14": """\
`--gradients auto` went back to plain DDP

What it means: A strategy was expected to make a step clearly shorter, was tried for some steps, and did not keep what was expected of it.
  The model exchanges by DDP's own all-reduce in C++ again, as if nothing had been asked for. The notice has all three times: expected,
  measured, and that of plain DDP.
Why it matters: A prediction rests on a few measured messages and steps. What it does not see, such as cores that are busy or other jobs'
  traffic, shows in the trial only; so the trial has the last word.
What to do: Nothing. To see how each strategy does with this script: `paceline bench step train.py`.
Source: paceline/comm/auto/tuning_policy.py; docs/exchange.md.
""",
    "X20": """\
MPI was asked for, and mpi4py or an MPI library is not there

What it means: `init_process_group("mpi")` is the backend `paceline_mpi` in a job, because torch's wheels are built without MPI. It
  needs the
  package mpi4py, and mpi4py needs an MPI library (Open MPI, MPICH, Intel MPI) when the program runs. "saw" says which of them failed.
Why it matters: mpi4py's wheel installs on a machine without MPI, and only its use shows that the library is missing.
What to do: `pip install 'paceline[mpi]'`; `apt-get install openmpi-bin`, or the module of your cluster. Where MPI itself is not the point,
  the backend `paceline` needs neither: `init_process_group("paceline")`.
Source: paceline/comm/mpi/world.py; docs/smdistributed.md.
""",
    "X21": """\
smdistributed.dataparallel for TensorFlow comes later

What it means: The script imports `smdistributed.dataparallel.tensorflow`. In a job of paceline `smdistributed.dataparallel.torch`
is there, the
  TensorFlow side is not yet. The error is an ImportError, so `try: ... except ImportError:` goes the other way.
Why it matters: AWS ended that side of the library with TensorFlow 2.9; a script that needs it runs nowhere today.
What to do: `tf.distribute.MultiWorkerMirroredStrategy` averages gradients over the same ranks.
Source: paceline/worker/shim/absent.py; docs/smdistributed.md.
""",
    "X22": """\
A call that smdistributed.dataparallel never had

What it means: The script asks `smdistributed.dataparallel.torch.distributed` for a name that no release of the library had, and that
  torch.distributed does not have either. Most such names are Horovod's or those of the library's TensorFlow side (`allreduce`, `init`,
  `size`). The error is an AttributeError; "next" has the name that is meant.
Why it matters: The script never ran on the library as it is, or it was changed since.
What to do: Use the name shown. `dir(dist)` lists every name that there is.
Source: paceline/worker/shim/absent.py; docs/smdistributed.md.
""",
    "X23": """\
These ranks were not started by MPI

What it means: The backend is `mpi` or `paceline_mpi`, and MPI.COMM_WORLD of each rank holds this rank alone, although the group
has several.
  `paceline run`, like torchrun, starts processes; only MPI's own launcher makes them ranks of one MPI.COMM_WORLD. Processes that were
  started apart cannot be joined afterwards: Open MPI 4 refuses MPI_Comm_connect between them.
Why it matters: Each rank would compute with itself and never notice.
What to do: Let mpirun start the ranks, and paceline watch them: `paceline run --no-python mpirun -n 4 python train.py`. Rank and size then
  are MPI's. Or leave MPI out: `init_process_group("paceline")`, or "gloo". Without paceline, `mpirun -n 4 python train.py` needs
  `from paceline.comm import backends; backends.register(socket.gethostname)` in the script.
Source: paceline/comm/mpi/world.py; docs/smdistributed.md.
""",
    "X24": """\
smdistributed.modelparallel is not part of paceline

What it means: The script, or transformers on account of the hyperparameters `mp_parameters` and `sagemaker_mpi_enabled`, imports
AWS's model
  parallel library. paceline trains data-parallel. The error is an ImportError.
Why it matters: A model that was split for the sake of memory does not fit on one device unsplit.
What to do: torch's own FSDP2 (`torch.distributed.fsdp.fully_shard`) or DTensor split a model and run under `paceline run`. Where the
  hyperparameter was left from an old job, leave it out.
Source: paceline/worker/shim/absent.py; docs/smdistributed.md.
""",
    "X25": """\
MPI was initialised for one thread

What it means: mpi4py.MPI was imported before with `mpi4py.rc.threads = False`, or a thread level below "serialized", or the MPI
library has no
  other. The backend calls MPI from a thread of its own.
Why it matters: Such an MPI may not be called from a second thread, not even when the first one rests.
What to do: Leave mpi4py.rc as it is, or set `mpi4py.rc.thread_level = "serialized"` before the first import of mpi4py.MPI.
Source: mpi4py documentation, "mpi4py.rc"; paceline/comm/mpi/world.py.
""",
    "X30": """\
A rate, delay, loss or size that cannot be meant

What it means: An option of the rehearsed network has no unit, one that is read in two ways, or a value that no network has. Rates
are written
  as tc writes them (kbit, mbit, gbit; Mbit/s is taken too), delays with us, ms or s, a loss with %, memory with mib or gib. To tc, mbps is
  10^6 bytes a second, to most people 10^6 bits; so it is refused. Nothing was started.
Why it matters: A network that is eight or a thousand times off gives figures that look like any others.
What to do: Write the unit as shown under "next".
Source: tc(8), "PARAMETERS"; paceline/cli/run_network.py.
""",
    "X31": """\
A network without hosts on this machine

What it means: `--link-rate`, `--link-delay`, `--link-loss`, `--zones`, `--zone-delay`, `--host-cpus` and `--host-memory` describe
hosts that
  `--local-hosts N` starts here. The network between real hosts is what it is.
Why it matters: The option would have no effect, and the run would be taken for one on a slow network.
What to do: Add `--local-hosts N`.
Source: docs/emulation.md.
""",
    "X32": """\
Network options that do not fit together

What it means: One host has no link; there are more zones than hosts; zones have no delay between them, or a zone delay has no zones.
Why it matters: The part that does not fit would be left out in silence.
What to do: Give both, as shown under "next". `--zones 2` shares 4 hosts as algo-1 and algo-2, algo-3 and algo-4.
Source: docs/emulation.md.
""",
    "X33": """\
Local hosts cannot have networks of their own here

What it means: Namespaces, virtual cables, rates and control groups are the kernel's, and it gives them to root only, on a machine that
  has iproute2 and util-linux and control groups that can be written to. "saw" says what was refused. What had been made until
  then was taken away again.
Why it matters: Without it the hosts would share the loopback interface, whose speed has nothing to do with a network's.
What to do: Run the command as root (`sudo paceline run ...`), on a virtual machine where a container is not allowed to. Or leave
the options
  out: `--local-hosts` alone needs nothing and shows what does not depend on the network.
Source: namespaces(7), tc-tbf(8), cgroups(7); docs/emulation.md.
""",
    "X34": """\
The rehearsed network is not the one that was asked for

What it means: Before the job started each host sent to the next one, all at once, and what arrived is more than 10 % off the rate,
the round
  trip or the loss that was asked for, in the repetition too. Rates are of TCP payload, about 4 % less than the frames' rate.
  The rate of a link that loses frames is TCP's doing and is not judged.
Why it matters: Step times of this run are those of the network that was delivered.
What to do: Most often the machine is busy: all hosts share its CPUs with what else runs there, and so does the relay that delays
  frames. Ask for fewer hosts or a lower rate, or wait until it is quiet. `uptime` shows the load.
Source: paceline/emulate/measure.py; docs/emulation.md.
""",
    "X35": """\
The hosts have more CPUs together than the machine

What it means: `--host-cpus` times `--local-hosts` is more than there are. A limit takes away, it does not give: when all hosts compute,
  each gets its share of what there is.
Why it matters: Compute time between two exchanges is longer than on the hosts that are rehearsed, so the exchange seems to matter less.
What to do: Ask for no more than the share shown under "next", and count the relay in, which takes CPU time of the same machine.
Source: kernel Documentation/scheduler/sched-bwc.rst; docs/emulation.md.
""",
}
