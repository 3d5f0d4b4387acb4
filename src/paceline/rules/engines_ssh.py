"""Pages of the codes E10 to E18: hosts over SSH. Laid out as those of usage."""

PAGES: dict[str, str] = {
    "E10": """\
A host cannot be reached by ssh

What it means: The ssh program, started as you would start it but without a terminal to ask on, could not log in to a host of the job.
  The message has ssh's own words, and tells apart: a name that cannot be resolved, a host that does not answer or where nothing
  listens, a host key that is not known or has changed, a login that wants a password. All hosts are looked at before anything is
  started.
Why it matters: A job that needs this host would wait for it until the join timeout.
What to do: Type the command under "next". It is the same ssh with the same options, and may ask: to accept a host key, for a password.
  For logins without a password, put your key there with `ssh-copy-id HOST`, or unlock it with `ssh-add`. What the host needs (a user, a
  port, a gateway) belongs into ~/.ssh/config, which is read, or into `--option user= port= identity= options=`.
Source: ssh(1), BatchMode and ConnectTimeout in ssh_config(5).
""",
    "E11": """\
A host has another paceline or another torch

What it means: The agent that would be started on a host is of another version than the paceline that submits the job, or its Python has
  another torch than that of the first host. Both versions are in the message.
Why it matters: Agents of different versions may not understand each other; ranks with different releases of torch may fail in the first
  collective, or compute something else without a word.
What to do: Install the same there with the command under "next", or name another Python of the hosts: `--option python=PATH`. Where
  nothing is named, the path of the Python that runs paceline here is tried on the host, then python3.
Source: launch/engines/ssh/preflight.py.
""",
    "E12": """\
A host has other code than was sent

What it means: The digest of the code on a host, after it was shipped, is not that of the code here. A damaged archive that lay there
  from an earlier job is replaced before this is said, so it was damaged on the way or while it was written.
Why it matters: Ranks would run different programs.
What to do: Send it again with the same command. If it happens twice, look at the host's disk.
Source: launch/engines/package.py, the digest of a package.
""",
    "E13": """\
A host has no room for the job's files, or refuses them

What it means: The file system of the job's directory on a host is too full for the code and a recording, is read-only, or belongs to
  somebody else.
Why it matters: The job would fail there after it has started on the others.
What to do: Make room, or name another directory that every host has: `--option workdir=/scratch/you/jobs`. What no job has written to
  for a week is removed from it whenever a job is started.
Source: docs/engines.md, SSH.
""",
    "E14": """\
A host does not find the first host by its name

What it means: The agents of all hosts meet on the first one, under the name or address that ssh itself uses for it from here. A host of
  the job cannot resolve that name: it is only in this machine's ~/.ssh/config or /etc/hosts, for instance.
Why it matters: That host's agent would never arrive.
What to do: Say under which address the other hosts reach the first one: `--option first_address=10.0.0.1`.
Source: getaddrinfo(3); `ssh -G HOST` shows what ssh uses.
""",
    "E15": """\
A host has no Python that will do

What it means: On a host, the Python that was to start the agent is missing, cannot be executed, or is older than 3.11. Where `--option
  python=` is not given, the path of the Python that runs paceline here is tried there, then python3.
Why it matters: The agent is a Python program.
What to do: Install Python and paceline there at the same path as here, or name the one to take: `--option python=/opt/env/bin/python`.
Source: launch/engines/ssh/connection.py.
""",
    "E16": """\
The hosts of a job over SSH are not named in a way that can be used

What it means: No hosts are named, one is named twice, a name is none that ssh would take, their number is not the job's, or a value of
  `--option` cannot be read.
Why it matters: Nothing was started: a guess could start the job on the wrong machines.
What to do: Name each host once, in the order of their node ranks: `--hosts node1,node2`. A host is written as for ssh: NAME or
  USER@NAME.
Source: docs/engines.md, SSH.
""",
    "E17": """\
A host of a job over SSH is lost

What it means: The connection to a host ended while the job ran: its sshd or the host itself died, or the network was cut. ssh asks
  every five seconds and gives up after three questions without an answer. The message has its last words. Exit code 200.
Why it matters: The job cannot go on without the host. Every other host's agent was told to end its ranks; the lost host's agent ends
  them by itself as soon as it has heard nothing for 30 s.
What to do: See whether the host is back with the command under "next", then start the job again. With `paceline submit --retries N` it
  is started again by itself, on the hosts that are left; `--option spares=node3` names hosts that may take the place of lost ones.
Source: ssh_config(5), ServerAliveInterval and ServerAliveCountMax.
""",
    "E18": """\
There is no ssh program

What it means: The program that reaches the hosts, `ssh` or what `--option ssh=` names, cannot be started on this machine.
Why it matters: paceline uses your own ssh and its configuration, and brings none.
What to do: Install it: `apt-get install openssh-client`.
Source: ssh(1).
""",
}
