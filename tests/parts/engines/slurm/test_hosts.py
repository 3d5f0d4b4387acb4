"""What is said of a node on which no program could be started."""

import pytest

from paceline.parts.engines.remote_program import ConnectionLost
from paceline.parts.engines.slurm.hosts import _not_started

NO_PYTHON = "/bin/sh: 1: exec: /opt/python: not found"
ENDS = "srun: error: algo-1: task 0: Exited with exit code 127"
ABORTED = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."


@pytest.mark.parametrize(
    ("said", "code", "saw"),
    [
        (f"{NO_PYTHON}\n{ENDS}\n", 127, NO_PYTHON),
        (f"{NO_PYTHON}\n{ENDS}\n{ABORTED}\nsrun: Terminating StepId=3.0\n{ENDS}\n", 127, NO_PYTHON),
        (f"{ENDS}\n\n{ABORTED}\n", 127, f"{ENDS}; {ABORTED}"),
        ("one\ntwo\nthree\nfour\n", 1, "two; three; four"),
        ("", 1, "srun ended with 1 and said nothing"),
    ],
)
def test_the_nodes_own_words_come_before_those_of_srun(said, code, saw):
    assert _not_started("algo-1", ConnectionLost("", said, code)).saw == saw
