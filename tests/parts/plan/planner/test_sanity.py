"""Measured steps that draw a doubt, and those that do not."""

from dataclasses import replace

from paceline.catalog.types import Accelerator
from paceline.parts.plan.planner.evaluate import evaluate
from paceline.parts.plan.planner.fleet import Fleet, candidates_given
from paceline.parts.plan.planner.links import inter_link, intra_link
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.question import PlanQuestion
from paceline.parts.plan.planner.sanity import doubts, too_short_to_update
from paceline.parts.plan.planner.step_time import step_time
from paceline.parts.plan.planner.workload import Measurement, Precision, Strategy, Workload

A100 = Accelerator(name="A100", fp16_tflops=312.0, tf32_tflops=156.0, fp32_tflops=19.5, memory_gib=40.0)
BERT = Workload(gradient_bytes=1_344_000_000)


def host(per_host=8, hosts=1, word="nvlink3"):
    inter = inter_link(1600) if hosts > 1 else None
    return Machines(
        device=A100, devices_per_host=per_host, hosts=hosts, intra=intra_link(word, A100, per_host), inter=inter
    )


def measured(devices, ms, hosts=1):
    return Measurement(hosts=hosts, devices=devices, step_seconds=ms / 1e3)


def test_an_ordinary_pair_draws_nothing():
    assert doubts(host(), BERT, [measured(1, 310), measured(8, 330)]) == ()


def test_throughput_that_stays_the_same_is_doubted():
    # 6.2 sequences a second on 2, 4 and 8 devices of 2 sequences each, as published for BERT-Large on RTX 2080 Ti.
    found = doubts(host(word="pcie3"), BERT, [measured(2, 639), measured(4, 1290), measured(8, 2574)])
    assert any("hardly grows" in text for text in found)


def test_a_step_shorter_than_its_own_exchange_is_doubted():
    # 10,216 images a second and device on 527 hosts, as published for ResNet-50.
    found = doubts(host(hosts=527), Workload(gradient_bytes=102_000_000), [measured(4216, 1.0, hosts=527)])
    assert any("exchange of its gradients" in text for text in found)


def test_an_exchange_without_a_trace_is_doubted():
    found = doubts(host(word="pcie3"), Workload(gradient_bytes=770_000_000), [measured(1, 300), measured(8, 301)])
    assert any("nothing was exchanged" in text for text in found)


def test_more_than_the_peak_is_doubted_and_so_is_next_to_nothing():
    workload = Workload(batch=8, flops=1e14, precision=Precision.FP16)
    assert any("more than training reaches" in text for text in doubts(host(1), workload, [measured(1, 330)]))
    assert any("something other" in text for text in doubts(host(1), workload, [measured(1, 60_000)]))
    assert doubts(host(1), workload, [measured(1, 900)]) == ()


def test_a_step_is_doubted_by_the_device_it_was_measured_on_and_not_by_another():
    small = replace(A100, name="T4", fp16_tflops=65.0, memory_gib=15.0)
    roomy = Workload(
        batch=8,
        flops=2e13,
        precision=Precision.FP16,
        activation_bytes=20 * 2**30,
        parameter_bytes=2**20,
        gradient_bytes=2**20,
    )
    question = PlanQuestion(
        workload=roomy,
        candidates=tuple(candidates_given("small", small, Fleet())),
        measurements=(measured(1, 200),),
        measured_on=A100,
    )
    assert not any("measured step needs" in text for text in evaluate(question).warnings)
    assert any("measured step needs" in text for text in evaluate(replace(question, measured_on=small)).warnings)
    huge = replace(question, workload=replace(roomy, activation_bytes=60 * 2**30))
    assert any("A100 that has 40" in text for text in evaluate(huge).warnings)


def test_a_step_of_a_few_milliseconds_is_doubted():
    assert any("steps this short" in text for text in doubts(host(), BERT, [measured(1, 3)]))


def test_devices_that_get_faster_together_are_doubted():
    assert any("not alike" in text for text in doubts(host(), BERT, [measured(1, 300), measured(8, 200)]))


def test_a_step_too_short_for_an_update_is_no_step_and_the_size_of_its_gradients_is_not_used():
    device = replace(A100, memory_gb_per_second=1555.0)
    machines = replace(host(), device=device)
    given = [measured(1, 0.3)]
    assert any("not that of a whole step" in text for text in doubts(machines, BERT, given))
    of_a_token = step_time(machines, BERT, given)
    assert of_a_token.seconds < 2 * 0.3e-3
    assert any("the size of the gradients" in text for text in of_a_token.warnings)
    assert not too_short_to_update(machines, replace(BERT, strategy=Strategy.FSDP), given[0])
