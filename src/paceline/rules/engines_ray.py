"""Pages of the codes E20 to E27: jobs on a Ray cluster. Laid out as those of usage."""

PAGES: dict[str, str] = {
    "E20": """\
The Ray cluster does not answer

What it means: Nothing listens at the address of the cluster's head (`--option address=`, else RAY_ADDRESS), no cluster was found on
  this machine (`auto`), or Ray could not be started here where no address was given. The address is tried for 3 seconds first, because
  Ray itself tries for much longer.
Why it matters: Nothing was started, and nothing is waiting.
What to do: Give the address that `ray start --head` printed, with its port (6379 unless changed), and check from this machine that it can
  be reached: `ray status --address HOST:PORT` on a node says whether the cluster is up.
Source: ray.init, address; docs/engines.md.
""",
    "E21": """\
The Ray cluster can never hold the job

What it means: Even if nothing else ran, the nodes that are alive have not enough of what each host of the job takes. The message has
  what was asked for and what every node has in total. With several hosts each one wants a node of its own (STRICT_SPREAD), so a
  large node does not stand for two.
Why it matters: Ray would keep such a request pending for ever without a word. A cluster that is only busy is waited for, with a notice.
What to do: Lower `--option cpus_per_host=`, `gpus_per_host=` or `memory_per_host=`, ask for fewer hosts, allow several on one node with
  `--option strategy=PACK`, or add nodes. `--option wait=10m` waits for nodes that are still to come, as an autoscaler's.
Source: Ray, placement groups; ray.nodes().
""",
    "E22": """\
The job counts its ranks by GPUs, and asks for none

What it means: `--nproc-per-node gpu` or `auto` starts one rank for each GPU of a host, and the job says nothing of GPUs to Ray.
Why it matters: Ray shows a process only the GPUs that were asked for, and here that would be none.
What to do: `--option gpus_per_host=N`, with N as many as the job may use of each node.
Source: Ray, accelerator support: CUDA_VISIBLE_DEVICES of a worker.
""",
    "E23": """\
A Ray node has another Python, Ray, paceline or torch

What it means: The node that is named runs another Python, has another paceline or torch than the machine that submits the job, or none;
  or the cluster runs another Ray. Labels of a build (+cpu, +cu126) are not compared. Looked at before any rank starts.
Why it matters: Hosts with different versions of torch can fail, or compute different gradients, hours later.
What to do: Install the same versions in the Python that the node's Ray runs in, which need not be the one in your shell there.
Source: importlib.metadata on each node; Ray's own check of Python and Ray when a driver connects.
""",
    "E24": """\
This machine is not a node of the Ray cluster

What it means: The cluster answers, but no Ray runs on this machine that belongs to it. A driver joins through its own node.
Why it matters: Nothing was started.
What to do: Submit on a node of the cluster, usually its head, or let this machine join without giving anything away:
  `ray start --address HOST:PORT --num-cpus 0`.
Source: ray.init on an existing cluster.
""",
    "E25": """\
The Ray cluster wants a token

What it means: The cluster was started with token authentication, and the submitting process has no token, or another one. Ray tries for 20
  seconds before it gives up. Where something listens at the address that is no Ray head, it looks the same from here.
Why it matters: Whoever joins a Ray cluster can run anything on all of its nodes.
What to do: Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the cluster's token, where you submit. paceline
  hands it to Ray and nobody else; ranks do not see it.
Source: Ray, token authentication.
""",
    "E26": """\
A node of the Ray cluster was lost

What it means: The agents of the job stopped hearing from a host, or its actor stopped answering for 15 seconds, or did not start within two
  minutes. Ray itself may take longer to notice. The run ends with 200, or starts again on other nodes where `--retries` is left.
Why it matters: A lost host is not the script's failure, so it has a budget of its own; a script that fails is never retried for it.
What to do: `ray status` shows which nodes are left. `--retries N` starts the job again, as RUN.2, RUN.3, once enough nodes are there;
  write checkpoints, so that it goes on where it was.
Source: docs/engines.md.
""",
    "E27": """\
The agent could not be prepared on a Ray node

What it means: The actor is on its node, and the code of the job could not be unpacked there: no room or no rights below its temporary
  directory, as a rule. The message has the node's own words.
Why it matters: The other hosts would wait for this one.
What to do: Make room there, or start the node's Ray with TMPDIR set to a directory with room.
Source: paceline/launch/engines/ray/agent_actor.py.
""",
}
