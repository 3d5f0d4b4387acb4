"""K15: a rendezvous of the script's own."""

import pytest

from paceline.findings import Severity


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('os.environ["MASTER_ADDR"] = "localhost"', "MASTER_ADDR"),
        ('os.environ["MASTER_PORT"] = "29500"', "MASTER_PORT"),
        ('os.environ.update({"MASTER_ADDR": "10.0.0.1"})', "MASTER_ADDR"),
        ('os.environ.update(RANK="0")', "RANK"),
        ('if not args.quiet:\n    os.environ["MASTER_ADDR"] = "localhost"', "MASTER_ADDR"),
    ],
)
def test_a_fixed_text_over_the_launchers_is_a_warning_with_its_line(found, job, line, name):
    (finding,) = found("K15", job(f"import os\n{line}\n", hosts=2, ranks_per_host=1))
    assert finding.severity is Severity.WARNING
    assert f"sets {name} to" in finding.what
    assert "os.environ.setdefault" in finding.next


def test_nothing_else_of_a_line_that_sets_several_is_shown(found, job):
    text = 'import os\nos.environ.update({"TOKEN": "hunter2", "MASTER_PORT": "1"})\n'
    (finding,) = found("K15", job(text, hosts=2))
    assert finding.saw == "train.py:2: MASTER_PORT='1'"


def test_a_fixed_rank_misleads_on_one_host_too(found, job):
    assert found("K15", job('import os\nos.environ["RANK"] = "0"\n', ranks_per_host=2))


def test_an_address_in_the_call_sends_each_host_to_itself(found, job):
    text = 'import torch.distributed as dist\ndist.init_process_group("gloo", init_method="tcp://localhost:23456")\n'
    (finding,) = found("K15", job(text, hosts=2))
    assert "sends each host to itself" in finding.what
    assert not found("K15", job(text, hosts=1))


@pytest.mark.parametrize(
    "line",
    [
        'os.environ.setdefault("MASTER_ADDR", "localhost")',
        'if "MASTER_ADDR" not in os.environ:\n    os.environ["MASTER_ADDR"] = "localhost"',
        'os.environ["MASTER_ADDR"] = hosts[0]',
        'if "RANK" not in os.environ:\n    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost")',
        'if "LOCAL_RANK" in os.environ or "SLURM_PROCID" in os.environ:\n    pass\nelse:\n    os.environ["MASTER_ADDR"] = "::1"',
        'def start():\n    if os.getenv("WORLD_SIZE"):\n        return\n    os.environ["MASTER_ADDR"] = "localhost"',
        'os.environ["NCCL_DEBUG"] = "INFO"',
        'os.environ["WORLD_SIZE"] = "4"',
        'settings["MASTER_ADDR"] = "localhost"',
    ],
)
def test_what_leaves_the_launchers_value_draws_nothing(found, job, line):
    assert not found("K15", job(f"import os\n{line}\n", hosts=2, ranks_per_host=2))


def test_on_one_host_localhost_is_right(found, job):
    text = 'import os\nos.environ["MASTER_ADDR"] = "localhost"\nos.environ["MASTER_PORT"] = "12355"\n'
    assert not found("K15", job(text, ranks_per_host=8))


DRAWN = (
    "str(random.randint(20000, 40000))",
    "str(find_free_port())",
    "str(utils.get_open_port())",
    "str(port)",
    "f'{server.getsockname()[1]}'",
)


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("value", DRAWN)
def test_a_port_that_each_rank_draws_never_meets_that_of_another(found, job, value, hosts):
    text = f"import os, random\nport = random.randrange(2000, 3000)\nos.environ['MASTER_PORT'] = {value}\n"
    (finding,) = found("K15", job(text, hosts=hosts, ranks_per_host=2))
    assert "they never meet" in finding.what and "train.py:3" in finding.next


@pytest.mark.parametrize(
    "text",
    [
        "os.environ.setdefault('MASTER_PORT', str(find_free_port()))",
        "if 'MASTER_PORT' not in os.environ:\n    os.environ['MASTER_PORT'] = str(find_free_port())",
        "os.environ['MASTER_PORT'] = str(find_free_port())\ntorch.multiprocessing.spawn(main, nprocs=2)",
        "os.environ['MASTER_PORT'] = str(15000 + int(os.environ['SLURM_JOB_ID']) % 5000)",
        "os.environ['MASTER_PORT'] = args.port",
        "if 'LOCAL_RANK' not in os.environ:\n    os.environ['MASTER_PORT'] = str(find_free_port())",
        "if not torch.distributed.is_torchelastic_launched():\n    os.environ['MASTER_PORT'] = str(find_free_port())",
        "port = find_free_port()\nport = comm.bcast(port)\nos.environ['MASTER_PORT'] = str(port)",
        "port = comm.bcast(find_free_port() if rank == 0 else None)\nos.environ['MASTER_PORT'] = str(port)",
        "os.environ['MASTER_PORT'] = str(find_free_port())\ntorch.multiprocessing.Process(target=main).start()",
        "os.environ['MASTER_PORT'] = str(find_free_port())\nsubprocess.run(['torchrun', 'train.py'])",
    ],
)
def test_one_port_for_all_ranks_draws_nothing(found, job, text):
    assert not found("K15", job(f"import os, torch\n{text}\n", hosts=2, ranks_per_host=2))
