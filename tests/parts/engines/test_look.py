"""Where a program can be run beside the ranks of a job."""

import shlex

import pytest

from paceline.errors import UsageError
from paceline.parts.engines.look import command_on

ARGV = ("sh", "-c", 'exec "$@"', "look", '{"a": 1}')


def test_a_node_is_reached_by_ssh_with_one_word_for_its_shell():
    command = command_on("me@node-b", ARGV)
    assert command[0] == "ssh" and "BatchMode=yes" in command
    assert command[-2] == "me@node-b" and shlex.split(command[-1]) == list(ARGV)


def test_a_slurm_job_is_looked_at_on_each_of_its_nodes_beside_its_steps():
    command = command_on("slurm:4711", ARGV)
    assert command[:2] == ("srun", "--jobid=4711") and "--overlap" in command and command[-5:] == ARGV


@pytest.mark.parametrize(
    ("place", "words"), [("pod:train-1", ("train-1", "--")), ("pod:train-1/main", ("train-1", "-c", "main", "--"))]
)
def test_a_pod_is_reached_by_kubectl(place, words):
    assert command_on(place, ARGV) == ("kubectl", "exec", *words, *ARGV)


@pytest.mark.parametrize(
    "place",
    ["", "a b", "-oProxyCommand=x", "a;b", "slurm:", "slurm:all", "slurm:-1", "pod:", "pod:-x", "pod:a/-b", "pod:A"],
)
def test_another_word_is_no_place(place):
    with pytest.raises(UsageError) as refused:
        command_on(place, ARGV)
    assert refused.value.code == "U05"
