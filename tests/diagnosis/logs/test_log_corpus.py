"""The corpus is scored: nearly every log is answered right, none falsely sure, and the noise of platforms makes no right answer wrong."""

import random

import pytest
from log_corpus import RELEASES, TRAINING, TWO_CAUSES, corpus, waited

from paceline.diagnosis.logs.judge_logs import judge_logs
from paceline.diagnosis.logs.lines import Log, plain_text
from paceline.findings import Confidence, Level

CORPUS = list(corpus())
RIGHT, UNCLEAR, WRONG = "right", "unclear", "wrong"
AT_LEAST_RIGHT = 0.95


def findings(text):
    return judge_logs([Log("job.log", plain_text(text))]).findings


def scored(text, answer):
    """right; unclear: nothing sure and nobody named who is not to blame; else wrong."""
    found = findings(text)
    if found and found[0].code in answer.codes and found[0].ranks == answer.ranks:
        seen = "\n".join(found[0].saw)
        if all(word in seen for word in answer.words):
            return RIGHT
    # That a limit was reached is so whatever else happened.
    sure = [
        f for f in found if f.confidence is Confidence.HIGH and f.code not in answer.codes and f.level != Level.LIMIT
    ]
    blamed = [f for f in found[:1] if f.confidence is not Confidence.UNCLEAR and not set(f.ranks) <= set(answer.ranks)]
    return WRONG if sure or blamed else UNCLEAR


def test_nearly_every_log_is_answered_right_and_none_falsely_sure():
    scores = {name: scored(text, answer) for name, text, answer in CORPUS}
    assert len(CORPUS) > 150
    assert [name for name, score in scores.items() if score == WRONG] == []
    missed = [name for name, score in scores.items() if score != RIGHT]
    assert len(missed) <= (1 - AT_LEAST_RIGHT) * len(CORPUS), missed


@pytest.mark.parametrize("text", TWO_CAUSES)
def test_a_sentence_with_two_causes_is_never_sure(text):
    for shown in (text, f"[rank1]: {text}", f"step 1\n{text}\nstep 2\n"):
        said = findings(shown)
        assert said and all(finding.confidence is not Confidence.HIGH for finding in said)
        assert said[0].next


def rank_marked(mark):
    return lambda line: mark + line


NOISE = {
    "CloudWatch": rank_marked("2026-01-30T11:30:02.123Z "),
    "a stream's name": rank_marked("2026-01-30T11:30:02.123000+00:00 train-job/algo-1-1769771402 "),
    "SageMaker's local mode": rank_marked("abcd1234-algo-1-xyz12  | "),
    "kubectl": rank_marked("[pod/train-worker-0/pytorch] "),
    "Ray": rank_marked("(RayTrainWorker pid=4242, ip=10.0.0.7) "),
    "colours": lambda line: f"\x1b[31m{line[:20]}\x1b[0m{line[20:]}\x1b[K",
    "carriage returns": lambda line: f"{line}\r",
}


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_what_a_platform_writes_before_a_line_makes_no_answer_wrong(noise):
    scores = {}
    for name, text, answer in CORPUS:
        noisy = "\n".join(noise(line) if line else "" for line in text.split("\n"))
        # Times of the platform are nearer than those in the line.
        bare = type(answer)(
            answer.codes, answer.ranks, tuple(w for w in answer.words if "from" not in w and "later" not in w)
        )
        scores[name] = scored(noisy, bare)
    assert [name for name, score in scores.items() if score == WRONG] == []
    assert sum(score == RIGHT for score in scores.values()) >= 0.9 * len(scores)


def test_marks_of_mpirun_and_torchrun_tell_the_rank_where_torch_does_not():
    old = RELEASES[1]
    for mark in ("[1,1]<stderr>:", "[prterun-n1-77@1,1]<stderr>: ", "[1,mpirank:1,algo-2]<stderr>:"):
        text = "\n".join(mark + line for line in waited(old).split("\n"))
        assert "rank 1 waited 30 min in ALLREDUCE #4211" in findings(text)[0].saw[0]


def test_the_label_of_srun_is_a_rank_only_where_every_line_has_one():
    raised = 'Traceback (most recent call last):\n  File "/a.py", line 1, in f\nKeyError: 1\n'
    labelled = "\n".join(f" {2}: {line}" for line in (TRAINING + raised).strip().split("\n"))
    assert findings(labelled)[0].ranks == (2,)
    assert findings(TRAINING + "2: an item of a list\n" + raised)[0].ranks == ()


@pytest.mark.parametrize("cut", ["head", "tail", "both"])
def test_a_log_that_is_cut_off_is_at_worst_unclear(cut):
    random.seed(7)
    for name, text, answer in CORPUS:
        for _ in range(3):
            first = random.randrange(len(text)) if cut != "tail" else 0
            last = random.randrange(first, len(text)) if cut != "head" else len(text)
            assert scored(text[first:last], answer) != WRONG, (name, first, last)


def test_lines_of_several_ranks_in_one_another_are_at_worst_unclear():
    random.seed(7)
    others = [f"[rank{rank}]: step {step} loss 0.1" for step in range(40) for rank in (0, 1, 2, 3)]
    for name, text, answer in CORPUS:
        lines = text.split("\n")
        for other in random.sample(others, 20):
            lines.insert(random.randrange(len(lines) + 1), other)
        # Ranks that are marked somewhere are known to be there.
        assert scored("\n".join(lines), answer) != WRONG, name


def test_two_ranks_in_one_line_are_told_apart():
    release = RELEASES[6]
    text = release.timeout(0, 9, "ALLREDUCE") + release.timeout(3, 9, "ALLREDUCE") + "\n"
    assert findings("Epoch 0:  6%|#  | 3/500 [00:01<?, ?it/s]" + text)[0].saw[0].startswith("ranks 0,3 waited")


def test_calls_of_two_groups_are_not_compared():
    release = RELEASES[6]
    text = "\n".join(
        (
            release.timeout(0, 71, "ALLREDUCE"),
            release.counters(0, 71, 73, 70),
            release.timeout(1, 71, "_ALLGATHER_BASE"),
            release.counters(1, 71, 73, 70).replace("PG ID 0 PG GUID 0(default_pg)", "PG ID 2 PG GUID 9"),
        )
    )
    assert [finding.code for finding in findings(text)] == ["unclear"]


def test_a_rank_whose_lines_were_cut_off_is_not_said_to_be_silent():
    release = RELEASES[6]
    lines = [release.timeout(0, 71, "ALLREDUCE"), release.counters(0, 71, 73, 70), release.timeout(2, 71, "ALLREDUCE")]
    seen = findings("\n".join([*lines, release.counters(3, 71, 73, 70), "[rank1]: step 70"]))[0].saw
    assert seen[0].startswith("ranks 0,2 waited")
    assert "no timeout was written by rank 1: look there first" in seen


def test_of_several_calls_that_one_rank_waits_in_the_first_is_named():
    release = RELEASES[0]
    text = "\n".join(release.timeout(0, index, "ALLREDUCE") for index in (96120, 96117, 96125))
    assert "ALLREDUCE #96117" in findings(text)[0].saw[0]


def test_sizes_that_may_differ_are_no_disagreement():
    release = RELEASES[5]
    text = "\n".join(release.timeout(rank, 610, "COALESCED", elements=1000 * rank) for rank in range(3))
    assert findings(text)[0].code == "unclear"


def test_who_ended_the_job_after_a_wait_is_a_consequence():
    text = waited(RELEASES[6]) + "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-01-30T12:00:21 ***\n"
    assert "waited 30 min" in findings(text)[0].saw[0]


def test_a_job_that_was_silent_before_its_limit_may_have_hung():
    text = TRAINING + "2026-01-30 12:00:21 MaxRuntimeExceeded\n"
    (finding,) = findings(text)
    assert (finding.code, finding.level) == ("C04", "limit")
    assert any("61 min before it" in seen or "1 h 01 min before it" in seen for seen in finding.saw)
    assert "did a rank wait for another" in finding.next[0]
