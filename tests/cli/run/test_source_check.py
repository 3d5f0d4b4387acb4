"""What `paceline run` says of the source of a script before it starts: a line, or a refusal; kept by the hashes of its files."""

import json

import pytest

from paceline.cli.run.source_check import check_source, own_name_text
from paceline.errors import UsageError
from paceline.facts import Contract, Job, Program, ProgramKind

WRONG = 'import os\nn = int(os.environ["SM_HOSTS"])\n'


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "paceline" / "checks"


@pytest.fixture
def line(cache, tmp_path):
    def of(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        return check_source(a_job(), None, tmp_path).text

    return of


def a_job(**fields):
    program = Program(kind=ProgramKind.SCRIPT, target="train.py", arguments=("--key", "hush"))
    return Job(**{"name": "train", "program": program, "ranks_per_host": 2, **fields})


def test_a_right_script_has_no_line(line):
    assert line(train="print(1)\n") == ""


def test_what_is_found_is_said_before_the_command_that_says_more(line):
    first, second, last = line(train="import helper\n" + WRONG, helper=WRONG).splitlines()
    assert first.startswith("paceline  check  K07 train.py:3: ") and "SM_HOSTS" in first
    assert second.startswith("paceline  check  K07 helper.py:2: ")
    assert last == "paceline  check  what to do: paceline check --nproc-per-node 2 train.py --key hush"
    assert first.count("train.py:3") == 1
    many = "import os\n" + 'len(os.environ["SM_HOSTS"])\n' * 6
    assert line(train=many).splitlines()[2].startswith("paceline  check  and 4 more: paceline check ")


@pytest.mark.parametrize("files", [{"train": "def (:\n"}, {"train": "import helper\n", "helper": "def (:\n"}])
def test_a_file_that_is_no_python_is_refused_also_from_the_cache(line, files):
    for _ in range(2):
        with pytest.raises(UsageError) as refused:
            line(**files)
        assert refused.value.code == "K06" and refused.value.saw and refused.value.next


def test_the_same_files_are_not_parsed_twice_and_a_changed_one_is(line, cache, monkeypatch):
    assert "K07" in line(train="import helper\n", helper=WRONG)
    (kept,) = cache.iterdir()
    document = json.loads(kept.read_text())
    document["findings"][0]["place"] = "from-the-cache"
    kept.write_text(json.dumps(document))
    assert "from-the-cache" in line()
    assert line(helper="print(1)\n") == ""
    assert "K07" in line(helper=WRONG)


def test_another_number_of_ranks_is_another_question(cache, tmp_path):
    (tmp_path / "train.py").write_text("import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n")
    assert "K13" in check_source(a_job(), None, tmp_path).text
    assert check_source(a_job(ranks_per_host=1), None, tmp_path).text == ""


def test_an_option_behind_the_script_and_hosts_that_cannot_meet_are_named(cache, tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    program = Program(kind=ProgramKind.SCRIPT, target="train.py", arguments=("--node-rank", "0"))
    job = a_job(program=program, max_hosts=2, ranks_per_host=1)
    said = check_source(job, None, tmp_path, master_addr="127.0.0.1").text
    assert said.splitlines() == [
        "paceline  check  K20: --node-rank stands behind the script, so it is the script's, which does not know it; "
        "put --node-rank before train.py",
        "paceline  check  K21: 2 hosts are to meet at 127.0.0.1, which no other machine can reach; "
        "--nnodes 2 --master-addr NAME-OF-THE-FIRST-HOST; on one machine --local-hosts 2",
    ]
    (tmp_path / "train.py").write_text(WRONG)
    assert (
        check_source(job, None, tmp_path, master_addr="127.0.0.1")
        .text.splitlines()[2]
        .startswith("paceline  check  K07 ")
    )
    assert "K21" not in check_source(job, None, tmp_path, master_addr="node1").text


def test_a_script_has_one_entry_whatever_it_is_asked_with(cache, tmp_path):
    (tmp_path / "train.py").write_text(WRONG)
    for rate in range(3):
        check_source(a_job(contract=Contract(hyperparameters={"lr": rate})), None, tmp_path)
    assert len(list(cache.iterdir())) == 1


def test_a_mistake_in_a_check_is_said_and_keeps_no_job_from_starting(line, monkeypatch):
    def broken(before):
        raise RecursionError("too deep")

    monkeypatch.setattr("paceline.rules.job_facts.source_verdicts", broken)
    assert line(train=WRONG) == "paceline  check  could not look at train.py: RecursionError: too deep"


def test_no_argument_and_no_hyperparameter_is_kept(cache, tmp_path):
    (tmp_path / "train.py").write_text(WRONG)
    check_source(a_job(contract=Contract(hyperparameters={"password": "s3cret"})), None, tmp_path)
    (kept,) = cache.iterdir()
    assert "hush" not in kept.read_text() and "s3cret" not in kept.read_text() + kept.name
    assert kept.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"files": {"train.py": 1}}', '{"files": {"gone.py": "x"}, "findings": []}']
)
def test_a_cache_that_cannot_be_read_is_made_anew(line, cache, text):
    line(train=WRONG)
    (kept,) = cache.iterdir()
    kept.write_text(text)
    assert "K07" in line()


def test_without_a_place_for_the_cache_it_looks_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    (tmp_path / "train.py").write_text(WRONG)
    assert "K07" in check_source(a_job(), None, tmp_path).text


def test_a_program_that_is_no_python_is_not_looked_into(cache, tmp_path):
    program = Program(kind=ProgramKind.EXECUTABLE, target="/bin/true")
    assert check_source(a_job(program=program), None, tmp_path).text == ""


@pytest.mark.parametrize("address", ["127.0.1.1", "::1", None])
def test_of_several_hosts_one_whose_own_name_leads_to_itself_is_told_so_before_the_start(address):
    job = a_job(min_hosts=2, max_hosts=2, master_addr="192.0.2.1")
    text = own_name_text(job, None, {}, lambda: address)
    assert (
        text.startswith("paceline  check  K32: the own name of ")
        and f"leads {f'to {address}' if address else 'nowhere'}" in text
    )
    assert "export GLOO_SOCKET_IFNAME=" in text


@pytest.mark.parametrize(
    ("gpu_count", "environ", "master_addr", "address"),
    [
        (None, {}, "192.0.2.1", "192.0.2.7"),
        (None, {"GLOO_SOCKET_IFNAME": "eth0"}, "192.0.2.1", "127.0.1.1"),
        # NCCL does not ask the name; agents that meet on a loopback address are on one machine.
        (8, {}, "192.0.2.1", "127.0.1.1"),
        (None, {}, "127.0.0.1", "127.0.1.1"),
    ],
)
def test_where_the_others_find_the_host_nothing_is_said(gpu_count, environ, master_addr, address):
    job = a_job(min_hosts=2, max_hosts=2, master_addr=master_addr)
    assert own_name_text(job, gpu_count, environ, lambda: address) == ""
