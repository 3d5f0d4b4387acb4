"""A job as the checks see it, and what becomes of their verdicts."""

import time
from textwrap import dedent

import pytest

from paceline.catalog.types import MachineType
from paceline.facts import Channel, Program, ProgramKind
from paceline.findings import Finding, Judgement, Severity, Verdict
from paceline.rules.collect import before_of
from paceline.rules.job_facts import BeforeRun, all_checks, checks_of, findings_of, refusal
from paceline.rules.script import parse
from paceline.rules.source import k07_raw_hosts

SHARDED = "ShardedByS3Key"


def script(target, *arguments, kind=ProgramKind.SCRIPT):
    return Program(kind=kind, target=target, arguments=arguments)


def finding(code, severity):
    return Finding(code=code, severity=severity, what="it is so", saw="this", next="that")


def fired(*findings):
    return Verdict(findings[0].code, Judgement.FIRED, findings)


def test_every_check_has_its_own_code_in_order():
    codes = [check.code for check in all_checks()]
    assert codes == sorted(set(codes))
    assert {f"K{number:02}" for number in (*range(1, 13), 15, 16, 17)} <= set(codes)


def test_a_job_of_which_nothing_is_known_is_never_fine_by_guess():
    said = {verdict.code: verdict for verdict in checks_of(BeforeRun(engine="ssh", hosts=2, max_run_seconds=60))}
    unjudged = {code for code, verdict in said.items() if verdict.judgement is Judgement.NOT_JUDGED}
    assert {"K02", "K04", "K05", "K06", "K07", "K08", "K10", "K11", "K15", "K16"} <= unjudged
    assert all(said[code].missing for code in unjudged)


def test_what_stops_the_job_comes_first():
    verdicts = [
        fired(finding("K01", Severity.WARNING)),
        Verdict("K02", Judgement.SILENT),
        fired(finding("K03", Severity.ERROR), finding("K03", Severity.ERROR)),
    ]
    assert [one.code for one in findings_of(verdicts)] == ["K03", "K03", "K01"]
    error = refusal(verdicts)
    assert error is not None
    assert (error.code, error.what, error.saw, error.next) == ("K03", "it is so (and 1 more error)", "this", "that")
    assert error.more == "paceline help K03"
    assert error.exit_code == 2


def test_a_warning_stops_nothing():
    assert refusal([fired(finding("K01", Severity.WARNING)), Verdict("K02", Judgement.NOT_JUDGED, missing="x")]) is None


def test_the_catalogue_fills_in_machine_and_gpus():
    before = before_of(engine="sagemaker", instance_type="ml.p4d.24xlarge", hosts=2, ranks_per_host="gpu")
    assert before.machine is not None and before.machine.name == "p4d.24xlarge"
    assert (before.gpus_per_host, before.ranks_per_host) == (8, 8)


@pytest.mark.parametrize(
    ("given", "gpus", "ranks"),
    [
        ("4", 8, 4),
        (3, None, 3),
        ("auto", 8, 8),
        ("auto", None, None),
        ("gpu", 0, None),
        ("xpu", 8, None),
        (None, 8, None),
    ],
)
def test_ranks_that_the_host_decides_stay_unknown(given, gpus, ranks):
    assert before_of(engine="local", ranks_per_host=given, gpus_per_host=gpus).ranks_per_host == ranks


@pytest.mark.parametrize(
    ("of", "gpus"), [("m5.large", 0), ("g5.xlarge", 1), ("trn1.32xlarge", None), ("local", None), ("p99.large", None)]
)
def test_gpus_are_counted_only_where_torch_has_them(of, gpus):
    assert before_of(engine="sagemaker", instance_type=of).gpus_per_host == gpus


def test_a_machine_of_ones_own_comes_before_the_catalogue():
    own = MachineType(name="rack", accelerator="NVIDIA A100-SXM4-40GB", accelerator_count=3)
    before = before_of(engine="ssh", instance_type="m5.large", machine=own)
    assert before.machine is own and before.gpus_per_host == 3


def test_keys_of_local_channels_are_counted_and_no_others(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("a", "b", "deep/c"):
        (tmp_path / name).touch()
    channels = (
        Channel(name="train", source=f"file://{tmp_path}", distribution=SHARDED),
        Channel(name="whole", source=str(tmp_path)),
        Channel(name="far", source="s3://bucket/train", distribution=SHARDED),
        Channel(name="listed", source="s3://bucket/test", distribution=SHARDED),
        Channel(name="gone", source=str(tmp_path / "gone"), distribution=SHARDED),
    )
    before = before_of(engine="local", hosts=2, channels=channels, key_counts={"listed": 7})
    assert [channel.key_count for channel in before.channels] == [3, None, None, 7, None]
    assert before_of(engine="local", channels=channels).channels[0].key_count is None


def test_the_script_is_found_in_the_directory_of_the_code(tmp_path):
    (tmp_path / "train.py").write_text("x = 1\r\n")
    (tmp_path / "requirements.txt").write_text("numpy\n")
    before = before_of(engine="ssh", program=script("train.py", "--lr", "1"), directory=tmp_path, use_spot=True)
    assert (before.script, before.script_path, before.arguments) == ("x = 1\n", "train.py", ("--lr", "1"))
    assert before.requirements == "numpy\n"
    assert before.use_spot


def test_a_module_is_found_too(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "train.py").write_text("x = 1\n")
    before = before_of(engine="ssh", program=script("jobs.train", kind=ProgramKind.MODULE), directory=tmp_path)
    assert (before.script, before.script_path) == ("x = 1\n", "jobs/train.py")


@pytest.mark.parametrize(
    "program",
    [
        script("train.sh"),
        script("mpirun", kind=ProgramKind.EXECUTABLE),
        script("gone.py"),
        script("a.b", kind=ProgramKind.MODULE),
    ],
)
def test_what_is_no_python_or_not_there_has_no_text(tmp_path, program):
    (tmp_path / "train.sh").touch()
    assert before_of(engine="local", program=program, directory=tmp_path).script is None


def test_a_declared_encoding_is_honoured_and_a_wrong_one_found(tmp_path):
    (tmp_path / "train.py").write_bytes("# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"))
    assert "é" in (before_of(engine="local", program=script("train.py"), directory=tmp_path).script or "")
    (tmp_path / "train.py").write_bytes("x = 1\ny = 'é'\n".encode("latin-1"))
    before = before_of(engine="local", program=script("train.py"), directory=tmp_path)
    found = findings_of(checks_of(before))
    assert [one.code for one in found] == ["K06"]
    assert "train.py:2" in found[0].what


def test_the_script_is_parsed_once_for_all_checks():
    before = BeforeRun(script="x = 11\n", script_path="once.py", hosts=2, ranks_per_host=1, gpus_per_host=1)
    parse.cache_clear()
    checks_of(before)
    assert parse.cache_info().misses == 1


def test_all_checks_of_a_long_script_take_no_time_that_grows_with_its_square():
    """Some 20 ms on one core; the bound leaves a busy machine ten times as much."""
    body = 'parser.add_argument("--a{0}", type=int)\nfor i{0} in range(3):\n    total{0} = f(i{0}) + int(os.environ["RANK"])\n'
    text = "import os\n" + "".join(body.format(number) for number in range(250))
    checks_of(BeforeRun(script="x = 1"))
    taken = []
    for attempt in range(5):
        before = BeforeRun(
            script=f"{text}# {attempt}\n", script_path="train.py", hosts=2, ranks_per_host=1, gpus_per_host=1
        )
        started = time.process_time()
        checks_of(before)
        taken.append(time.process_time() - started)
    assert min(taken) < 0.5, taken


def test_a_verdict_names_the_line_of_a_nested_call():
    text = dedent("""\
        import os

        def main():
            class Job:
                def hosts(self):
                    return [int(os.environ["SM_HOSTS"]) for _ in range(2)]
        """)
    (one,) = k07_raw_hosts.RULE.find(BeforeRun(script=text, script_path="src/train.py"))
    assert one.saw == 'src/train.py:6: return [int(os.environ["SM_HOSTS"]) for _ in range(2)]'
    assert one.severity is Severity.ERROR
