"""`paceline plan`: everything inline, types of the catalogue, what it refuses, what it prints."""

import json
import re

import pytest

from paceline.cli import main
from paceline.errors import UsageError
from paceline.parts.plan.cli.machines import look
from paceline.parts.plan.cli.options import EVERY_TYPE, parse_plan, type_names, words_of_ours

INLINE = [
    *("--device", "A100-SXM4-40GB", "--devices-per-host", "8", "--intra", "nvlink3"),
    *("--inter-gbps", "100", "--gradient-mib", "1272"),
]
STEP = [
    *("--gradient-mib", "1272", "--batch", "32", "--gflops-per-sample", "260"),
    *("--activation-mib-per-sample", "300", "--precision", "bf16"),
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def answer(capsys, *argv, code=0):
    assert main(["plan", "--json", *map(str, argv)]) == code
    return json.loads(capsys.readouterr().out)


def page(capsys, *argv, code=0):
    assert main(["plan", *map(str, argv)]) == code
    return capsys.readouterr().out


def refused(capsys, *argv):
    assert main(["plan", "--json", *map(str, argv)]) == 2
    error = json.loads(capsys.readouterr().out)
    assert error["what"] and error["next"] and error["more"]
    return error["code"], error


def test_one_anchor_answers_for_every_count_in_order(capsys):
    plan = answer(capsys, *INLINE, "--host-counts", "1,2,4", "--measured-step-ms", "310")
    assert plan["schema"] == "paceline.plan/2"
    assert [(row["hosts"], row["devices"], row["devices_per_host"], row["tier"]) for row in plan["rows"]] == [
        (1, 8, 8, 1),
        (2, 16, 8, 1),
        (4, 32, 8, 1),
    ]
    for row in plan["rows"]:
        assert row["step_seconds_low"] <= row["step_seconds"] <= row["step_seconds_high"]
        assert row["efficiency_fraction"] == pytest.approx(0.310 / row["step_seconds"])
        assert sum(row["terms_seconds"].values()) == pytest.approx(row["step_seconds"])
        assert row["memory"]["verdict"] == "not judged"
        assert row["hours"] is None and row["usd"] is None


def test_a_second_measured_size_makes_it_tier_2(capsys):
    plan = answer(
        capsys, *INLINE, "--host-counts", "1,2,4", "--measured-step-ms", "310", "--measured-step-ms-at", "2=335"
    )
    assert [row["tier"] for row in plan["rows"]] == [2, 2, 2]
    assert [row["step_seconds"] for row in plan["rows"][:2]] == pytest.approx([0.310, 0.335])
    assert plan["rows"][0]["efficiency_fraction"] == 1.0


def test_a_shape_of_hosts_and_devices_can_be_measured(capsys):
    plan = answer(
        capsys, *INLINE, "--host-counts", 1, "--measured-step-ms-at", "1x4=300", "--measured-step-ms-at", "1x2=290"
    )
    assert plan["rows"][0]["tier"] == 2
    assert plan["rows"][0]["step_seconds"] >= 0.3


def test_devices_of_one_host_beside_several_hosts_are_taken_for_each(capsys):
    argv = ["--measured-step-ms", "335", "--measured-hosts", "2", "--measured-devices", "8"]
    plan = answer(capsys, *INLINE, "--host-counts", "2", *argv)
    assert plan["rows"][0]["step_seconds"] == pytest.approx(0.335)
    assert any("taken for each of the 2 hosts" in one["what"] for one in plan["assumptions"])


def test_several_device_counts_make_rows_of_their_own(capsys):
    argv = [*INLINE, "--host-counts", "1", "--measured-step-ms", "310"]
    argv[argv.index("--devices-per-host") + 1] = "1,2,4,8"
    assert [row["devices"] for row in answer(capsys, *argv)["rows"]] == [1, 2, 4, 8]


def test_an_unknown_device_is_a_warning_and_still_an_answer(capsys):
    plan = answer(capsys, "--device", "TPU-9000", "--measured-step-ms", "10")
    assert plan["rows"][0]["step_seconds"] == pytest.approx(0.01)
    assert any("TPU-9000" in text for text in plan["warnings"])


def test_without_the_size_of_the_gradients_it_answers_and_says_so(capsys):
    plan = answer(capsys, *INLINE[:-2], "--measured-step-ms", "310")
    assert plan["rows"][0]["step_seconds_low"] < plan["rows"][0]["step_seconds"] < plan["rows"][0]["step_seconds_high"]
    assert any("gradients" in text for text in plan["warnings"])


def test_types_of_the_catalogue_get_memory_time_hours_and_cost(capsys):
    argv = [
        "--instance",
        "p4d.24xlarge,ml.p5.48xlarge",
        "--host-counts",
        "1,2",
        "--epochs",
        "3",
        "--samples",
        "1000000",
        "--max-run",
        "24h",
    ]
    plan = answer(capsys, *STEP, *argv)
    assert [row["name"] for row in plan["rows"]] == ["p4d.24xlarge"] * 2 + ["p5.48xlarge"] * 2
    for row in plan["rows"]:
        assert row["memory"]["verdict"] == "fits"
        assert row["tier"] == 0
        assert row["step_count"] == 3 * -(-1_000_000 // (32 * row["devices"]))
        assert row["usd"] == pytest.approx(row["usd_per_hour"] * row["hours"])
        assert 0 <= row["within_probability"] <= 1
        assert row["samples_per_second"] == pytest.approx(32 * row["devices"] / row["step_seconds"])
    assert plan["choice"]["row"] == min(range(4), key=lambda place: plan["rows"][place]["usd"])


def test_a_type_without_a_gpu_is_refused_with_its_hardware(capsys):
    plan = answer(capsys, *STEP, "--instance", "c5.4xlarge,p4d.24xlarge")
    assert "no GPU" in plan["rows"][0]["refused"][0]
    assert plan["rows"][0]["step_seconds"] is None
    text = " ".join(page(capsys, *STEP, "--instance", "c5.4xlarge,p4d.24xlarge").split())
    assert "no GPU: 16 vCPUs (on CPUs --for ddp-cpu; measure one step here: paceline run, then --from-run RUN)" in text


def test_a_plan_for_cpus_has_a_price_and_says_how_to_measure_a_step(capsys):
    plan = answer(capsys, *STEP, "--instance", "ml.m5.large", "--for", "ddp-cpu", "--host-counts", "1,2")
    first, second = plan["rows"]
    assert first["refused"] == []
    assert second["usd_per_hour"] == 2 * first["usd_per_hour"] > 0
    assert not [text for text in plan["not_judged"] if text.startswith("cost")]
    (text,) = [text for text in plan["not_judged"] if text.startswith("step time")]
    assert "measure one step here: paceline run, then --from-run RUN" in text


def test_several_zones_cost_time_and_money_and_one_zone_is_advised(capsys):
    argv = [*STEP, "--instance", "p4d.24xlarge", "--host-counts", "4", "--steps", "1000"]
    one, two = (answer(capsys, *argv, "--zones", zones) for zones in (1, 2))
    assert two["rows"][0]["step_seconds"] > one["rows"][0]["step_seconds"]
    assert two["rows"][0]["zone_traffic_usd"] == pytest.approx(2 * 2 * 3 / 4 * 1272 * 2**20 * 1000 / 1e9 * 0.02)
    assert "zones" in [advice["kind"] for advice in two["advice"]]


def test_what_cannot_be_kept_is_an_answer_and_fails_only_when_asked(capsys):
    argv = [*STEP, "--instance", "p4d.24xlarge", "--steps", "1000000", "--deadline", "1h"]
    plan = answer(capsys, *argv)
    assert plan["choice"]["code"] == "P10" and plan["choice"]["row"] is None and plan["choice"]["nearest_row"] == 0
    assert answer(capsys, *argv, "--fail-on", "P10", code=1) == plan
    assert "[P10]" in page(capsys, *argv)


def test_a_step_moved_to_another_accelerator_is_no_longer_measured(capsys):
    argv = [*STEP, "--instance", "p5.48xlarge", "--devices-per-host", "1", "--measured-step-ms", "400"]
    moved = answer(capsys, *argv, "--measured-device", "A100-SXM4-40GB")["rows"][0]
    own = answer(capsys, *argv)["rows"][0]
    assert (moved["tier"], own["tier"]) == (0, 1)
    assert moved["step_seconds"] < own["step_seconds"] == pytest.approx(0.4)
    assert moved["step_seconds_high"] / moved["step_seconds_low"] > 1.5


def test_explain_names_every_formula_with_its_source(capsys):
    argv = [
        *INLINE,
        "--measured-step-ms",
        "310",
        "--steps",
        "1000",
        "--usd-per-hour",
        "20",
        "--max-run",
        "12h",
        "--batch",
        "8",
    ]
    names = {formula["name"] for formula in answer(capsys, *argv, "--explain")["rows"][0]["formulas"]}
    assert {"hours", "cost of the machines", "scaling efficiency", "within the limit"} <= names
    text = page(capsys, *argv, "--explain")
    assert text.count("source: ") >= 5


@pytest.mark.parametrize("zones", ["1", "2"])
def test_no_line_of_a_page_is_wider_than_it(capsys, zones):
    argv = [
        *STEP,
        "--where",
        "gpus>=4",
        "--host-counts",
        "1,2,4",
        "--zones",
        zones,
        "--steps",
        "100000",
        "--max-run",
        "24h",
    ]
    assert max(map(len, page(capsys, *argv).splitlines())) <= 100
    assert "and " in page(capsys, *argv)


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ("--device A100 --measured-step-ms 3 --host-counts 0", "U03"),
        ("--device A100 --measured-step-ms -3", "U03"),
        ("--device A100 --measured-step-ms nan", "U03"),
        ("--device A100 --measured-step-ms inf", "U03"),
        ("--device A100 --measured-step-ms 3 --gradient-mib -1", "U03"),
        ("--device A100 --measured-step-ms 3 --devices-per-host 1.5", "U03"),
        ("--device A100 --measured-step-ms 3 --measured-hosts 2 --measured-devices 3", "U03"),
        ("--device A100 --measured-step-ms-at 2=-1", "U03"),
        ("--device A100 --measured-step-ms 3 --budget 0", "U03"),
        ("--device A100 --measured-step-ms 3 --max-run=-1h", "U03"),
        ("--device A100 --measured-step-ms three", "U03"),
        ("--device A100 --measured-step-ms-at 2", "U03"),
        ("--device A100 --measured-step-ms-at 2=3 --measured-step-ms-at 2=4", "U03"),
        ("--device A100 --measured-step-ms 3 --max-run soon", "U03"),
        ("--device A100 --measured-devices 8", "U03"),
        ("--device A100 --measured-step-ms 3 --epochs 1 --steps 2", "U03"),
        ("--device A100 --measured-step-ms 3 --fail-on smoke", "U03"),
        ("--device A100 --measured-step-ms 3 --inter-kind pigeon", "U03"),
        ("--device A100 --measured-step-mss 3", "U01"),
        ("--instance p3dn.48xlarge --measured-step-ms 3", "P01"),
        ("--instance p4d.24xlarge,p5.48xlarge --measured-step-ms 3", "P08"),
        ("--device A100", "P08"),
        ("", "P08"),
        ("--where gpus>=99 --measured-step-ms 3", "P08"),
        ("--device A100 --measured-step-ms 3 --curve nowhere.json", "U27"),
        ("no_such_script.py", "U02"),
    ],
)
def test_bad_input_is_refused_in_four_parts(capsys, argv, code):
    assert refused(capsys, *argv.split())[0] == code


def test_a_probed_curve_takes_the_place_of_the_specification(capsys, tmp_path):
    points = [[2**20 * size, 0.001 + size * 1e-4] for size in (1, 4, 16, 64, 256)]
    (tmp_path / "curve.json").write_text(
        json.dumps({"schema": "paceline.curve/1", "hosts": 2, "ranks": 16, "points": points})
    )
    argv = [*INLINE, "--host-counts", "2", "--measured-step-ms", "310", "--measured-devices", "8"]
    probed, specified = (answer(capsys, *argv, *more)["rows"][0] for more in (("--curve", "curve.json"), ()))
    assert probed["step_seconds"] != specified["step_seconds"]


def test_the_script_is_the_first_word_that_belongs_to_no_option():
    args = parse_plan(["--json", "--host-counts", "1,2", "train.py", "--host-counts", "7", "--json"])
    assert (args.hosts, args.script, args.script_args) == ("1,2", "train.py", ("--host-counts", "7", "--json"))
    assert parse_plan(["-m", "pkg.train", "--lr", "1"]).script == "pkg.train"
    assert parse_plan(["--explain", "--", "train.py"]).script == "train.py"


def test_intervals_read_low_to_high_and_nothing_is_certain(capsys):
    text = page(capsys, *INLINE, "--measured-step-ms", "310", "--steps", "10", "--max-run", "12h")
    assert re.search(r"\d+ \(\d+\.\.\d+\)", text)
    assert ">99%" in text and "100%" not in text


def test_a_rehearsal_is_measured_at_its_sizes(capsys, tmp_path):
    sizes = [
        {"measurement": {"hosts": 1, "devices": devices, "step_seconds": seconds}, "run": "r-000001", "steps": 20}
        | {"mean_step_seconds": seconds}
        for devices, seconds in ((1, 0.1), (2, 0.11))
    ]
    plain = {"schema": "paceline.rehearsal/1", "id": "h-1", "program": ["train.py"], "sizes": sizes}
    (tmp_path / "rehearsal.json").write_text(json.dumps(plain))
    plan = answer(capsys, "--rehearsal", "rehearsal.json", "--devices-per-host", "1,2,4")
    assert [row["tier"] for row in plan["rows"]] == [2, 2, 2]
    assert [row["step_seconds"] for row in plan["rows"][:2]] == pytest.approx([0.1, 0.11])
    assert refused(capsys, "--rehearsal", "rehearsal.json", "--instance", "p4d.24xlarge")[0] == "P08"
    assert refused(capsys, "--rehearsal", "nowhere.json")[0] == "U27"


def test_a_recorded_run_is_a_measured_step(capsys, recording):
    made = recording("r-aaaaaa")
    made.identity()
    for rank in (0, 1):
        made.event("rank_started", host="algo-1", rank=rank, attempt=0, pid=1000 + rank)
        made.segment("algo-1", rank, steps=40)
        made.event("rank_exited", host="algo-1", rank=rank, attempt=0, code=0, time_ns=9)
    made.finish()
    plan = answer(capsys, "--from-run", made.path if hasattr(made, "path") else made.directory.path)
    assert (plan["rows"][0]["tier"], plan["rows"][0]["devices"]) == (1, 2)


def test_a_machine_file_names_accelerators_as_people_do(capsys, tmp_path):
    file = tmp_path / "lab.toml"
    file.write_text(
        '[[machine]]\nname = "lab"\naccelerator = "RTX A6000"\naccelerator_count = 4\nintra_link = "pcie4"\n'
        '[[machine]]\nname = "own"\naccelerator = "ACME X1"\naccelerator_count = 2\n'
        '[[accelerator]]\nname = "ACME X1"\nbf16_tflops = 100\nmemory_gib = 47.5\n'
    )
    plan = answer(capsys, "--file", file, "--measured-instance", "lab", "--measured-step-ms", "310", *STEP)
    lab, own = plan["rows"]
    assert lab["tier"] == 1 and not lab["refused"]
    assert own["memory"]["capacity_bytes"] == round(47.5 * 2**30)
    assert not own["refused"] and "whether torch drives it" in own["warnings"][0]


@pytest.mark.parametrize(
    "argv",
    [
        ("--host-counts", ""),
        ("--measured-step-ms-at", ""),
        ("--instance", "p3.2xlarge", "--device", "V100"),
    ],
)
def test_words_that_would_be_passed_over_are_refused(capsys, argv):
    assert refused(capsys, "--measured-step-ms", "310", *argv)[0] == "U03"


@pytest.mark.parametrize("names", ["", " , "])
def test_a_list_of_types_without_a_name_is_refused(capsys, names):
    code, error = refused(capsys, *STEP, "--instance", names)
    assert (code, error["saw"]) == ("P08", "--instance ''")


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        (" p4d.24xlarge , ml.g5.xlarge,", ("p4d.24xlarge", "ml.g5.xlarge")),
        (" ALL", EVERY_TYPE),
        ("all,x", ("all", "x")),
    ],
)
def test_types_are_read_from_their_list_once(typed, names):
    assert type_names(typed) == names


@pytest.mark.parametrize(
    ("word", "doubted"), [("nvlnk3", True), ("nvlink9", True), ("none", False), ("NVSwitch", False)]
)
def test_a_link_that_nobody_knows_is_doubted(capsys, word, doubted):
    plan = answer(capsys, *INLINE, "--measured-step-ms", "310", "--intra", word)
    assert any("--intra" in text for text in plan["warnings"]) is doubted


def test_options_after_the_script_are_told_apart():
    ours, others = words_of_ours(["--host-counts", "1,2", "--lr", "0.1", "--json", "--steps=5", "data"])
    assert ours == ["--host-counts", "1,2", "--json", "--steps=5"]
    assert others == ["--lr", "0.1", "data"]


def test_a_script_that_fails_on_an_option_of_ours_is_shown_the_command(capsys, tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("")
    failed = UsageError(
        "P03", "train.py: left with 2", saw="unrecognized arguments: --host-counts 1,2", next="run it by itself"
    )

    def trace(*_, **__):
        raise failed

    monkeypatch.setattr("paceline.parts.plan.trace_script.trace", trace)
    code, error = refused(capsys, "--batch", "8", "train.py", "--lr", "0.1", "--host-counts", "1,2")
    assert code == "P03"
    assert "paceline plan --json --batch 8 --host-counts 1,2 train.py --lr 0.1" in error["next"]


def test_a_script_that_fails_for_another_reason_is_not_told_of_options(capsys, tmp_path, monkeypatch):
    """Many scripts have an --epochs of their own."""
    (tmp_path / "train.py").write_text("")
    failed = UsageError("P03", "train.py: left with 1", saw="URLError: no route to host", next="run it by itself")

    def trace(*_, **__):
        raise failed

    monkeypatch.setattr("paceline.parts.plan.trace_script.trace", trace)
    assert refused(capsys, "train.py", "--epochs", "1")[1]["next"] == "run it by itself"


def test_a_missed_deadline_is_helped_by_a_type_that_keeps_it(capsys):
    argv = [
        *("--gradient-mib", "100", "--gflops-per-sample", "12", "--batch", "64", "--precision", "fp16"),
        *("--measured-step-ms", "310", "--measured-instance", "p3.2xlarge"),
        *("--epochs", "10", "--samples", "1281167", "--deadline", "10h"),
    ]
    late = answer(capsys, "--instance", "p3.2xlarge", *argv)
    assert late["choice"]["code"] == "P10"
    advice = next(one for one in late["advice"] if one["kind"] == "type")
    kept = answer(capsys, *advice["how"].split(), *argv)
    assert kept["choice"]["code"] is None and kept["choice"]["row"] == 0


def test_accumulation_is_priced_for_as_many_samples(capsys):
    argv = ("--instance", "p3.16xlarge", "--host-counts", "2", "--gradient-mib", "1272", "--measured-step-ms", "310")
    plan = answer(capsys, *argv, "--steps", "1000")
    advice = next(one for one in plan["advice"] if one["kind"] == "accumulation")
    assert advice["usd_after"] < advice["usd_before"]


def test_a_step_that_does_not_fit_is_sent_to_a_type_where_it_does(capsys):
    argv = ("--instance", "g4dn.xlarge", "--parameters", "1B", "--batch", "64", "--activation-mib-per-sample", "50")
    plan = answer(capsys, *argv)
    assert plan["rows"][0]["memory"]["verdict"] == "does not fit"
    (advice,) = [one for one in plan["advice"] if one["kind"] == "type"]
    moved = answer(capsys, *advice["how"].split(), *argv[2:])
    assert moved["rows"][0]["memory"]["verdict"] == "fits"


def test_a_batch_without_divisors_is_answered_at_once(capsys):
    argv = ("--measured-step-ms", "310", "--batch", "1000000007", "--activation-mib-per-sample", "100")
    plan = answer(capsys, *INLINE, *argv)
    assert plan["advice"][0]["change"].startswith("microbatches of 1,")


def test_what_an_unmeasured_answer_is_good_for_is_said(capsys):
    argv = ("--instance", "p4d.24xlarge", "--gflops-per-sample", "12", "--batch", "64", "--gradient-mib", "100")
    assert "This ranks" in page(capsys, *argv)
    assert "This ranks" not in page(capsys, *argv, "--measured-step-ms", "300")


@pytest.mark.parametrize(
    ("words", "devices"),
    [
        ("--instance p4d.24xlarge train.py", 8),
        ("--instance g5.xlarge,g5.12xlarge train.py", 4),
        ("--where family=g5 train.py", 8),
        ("--instance all train.py", 16),
        ("--instance p4d.24xlarge --devices-per-host 1,2 train.py", 2),
        ("--instance c5.large train.py", 1),
        ("--device A100 train.py", 1),
    ],
)
def test_the_script_finds_as_many_devices_as_the_largest_host_has(words, devices):
    args = parse_plan(words.split())
    assert look(args, has_workload=True).most_devices_per_host == devices
