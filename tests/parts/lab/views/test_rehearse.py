"""A rehearsal and a comparison as pages."""

from dataclasses import replace

from paceline.parts.lab.views.rehearse import rehearsal_json, rehearsal_text, tried_line
from paceline.parts.plan.planner.against import DifferenceReason, PlanComparison, Term
from paceline.parts.plan.planner.answer import Fit, Memory, Row, StepTime
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.observed import ObservedRun
from paceline.parts.plan.planner.rehearsal import Probe, Rehearsal, RehearsedSize, Slots, predict
from paceline.parts.plan.planner.workload import Measurement
from paceline.parts.plan.views.against import against_facts, against_text


def tried(devices, seconds, crowding=1.0, exchange=0.0):
    measured = Measurement(
        hosts=1, devices=devices, step_seconds=seconds, exposed_communication_seconds=exchange, loading_seconds=None
    )
    return RehearsedSize(
        measurement=measured,
        run_id="r-1",
        step_count=30,
        mean_step_seconds=seconds,
        compute_seconds=None,
        crowding=crowding,
    )


REHEARSAL = Rehearsal(
    id="rh-1",
    program=("train.py",),
    sizes=(tried(1, 0.100), tried(2, 0.105, exchange=0.004), tried(4, 0.220, crowding=2.0)),
    room=Slots(cpus=2.0, devices=0),
    probe=Probe(points=((4096.0, 4e-4), (67_108_864.0, 0.06)), ranks=2, backend="gloo"),
    notes=("weak scaling",),
)


def test_measured_sizes_stand_above_predicted_ones_and_crowded_ones_say_so():
    text = rehearsal_text(REHEARSAL, predict(REHEARSAL, [(1, 8)]), "rehearsal.json", width=100)
    lines = text.splitlines()
    assert lines[0].split()[:2] == ["HOSTS", "RANKS"] and lines[0].endswith("HERE MS")
    assert "measured, crowded" in lines[3] and "predicted, tier 2" in lines[4]
    assert "1.1 GB/s bus bandwidth at 64 MiB" in text and "weak scaling" in text
    assert "paceline plan --rehearsal rehearsal.json" in text
    assert all(len(line) <= 100 for line in lines)


def test_what_is_not_known_is_no_zero():
    assert tried_line(tried(1, 0.1)) == "1 rank: 100 ms a step over 30 steps (exchange 0.00 ms)"
    assert "crowded: 2 for each place" in tried_line(tried(4, 0.2, crowding=2.0))


def test_the_program_gets_the_file_and_the_predictions():
    facts = rehearsal_json(REHEARSAL, predict(REHEARSAL, [(1, 8)]), "rehearsal.json")
    assert facts["schema"] == "paceline.rehearsal/2" and facts["file"] == "rehearsal.json"
    assert facts["predictions"][0]["devices"] == 8 and facts["predictions"][0]["here_seconds"] > 0


def comparison(measured_seconds=0.150):
    step = StepTime(seconds=0.1, low_seconds=0.09, high_seconds=0.12, tier=1, terms={"compute": 0.1})
    observed = ObservedRun(
        measurement=Measurement(hosts=2, devices=4, step_seconds=measured_seconds),
        run="r-1",
        steps=30,
        mean_step_seconds=measured_seconds,
    )
    return PlanComparison(
        row=Row(
            machines=Machines(device=None, devices_per_host=2, hosts=2),
            memory=Memory(verdict=Fit.NOT_JUDGED),
            step=step,
            name="p9",
        ),
        observed=observed,
        predicted_seconds=0.1,
        measured_seconds=measured_seconds,
        within=False,
        terms=(Term(name="compute", predicted=0.1, measured=None), Term(name="loading", predicted=0.0, measured=0.04)),
        startup=Term(name="start-up", predicted=300.0, measured=6.0),
        memory=Term(name="memory", predicted=None, measured=None),
        reasons=(
            DifferenceReason(kind="loading", what="waiting for data takes 40.0 ms", seconds=0.04, next="more workers"),
            DifferenceReason(kind="compute", what="computing takes 10.0 ms longer", seconds=0.01),
        ),
        not_judged=("exposed communication: the ranks could not time it",),
    )


def test_what_explains_most_comes_first_with_its_share():
    text = against_text(comparison())
    assert "50% longer than predicted, outside the plan's interval (tier 1)" in " ".join(text.split())
    assert "most of it, 80% of the difference: waiting for data takes 40.0 ms (more workers)" in text
    assert "20% of the difference: computing" in text
    assert "start-up took 6.0 s" in text and "not judged" in text
    assert against_facts(comparison())["reasons"][0]["seconds"] == 0.04


def test_noise_is_not_explained():
    same = replace(comparison(), measured_seconds=0.101, within=True)
    assert "nothing to explain" in against_text(same) and "as predicted, inside" in " ".join(against_text(same).split())
