"""What follows from the name of a backend, for every name that a torch from 2.4 to 2.15 gives one."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import paceline
from paceline.backend_names import averages_floats, is_nccl, names_in, waits_on_device

NCCL = ("nccl", "NCCL", "nccl2", "nccl-legacy", "nccl-lazy", "nccl4py")
ON_HOST = ("gloo", "mpi", "paceline", "smddp", "paceline_mpi", "fake", "undefined", "")


@pytest.mark.parametrize("name", NCCL)
def test_every_backend_over_nccl_is_one_alone_and_beside_gloo(name):
    assert is_nccl(name) and waits_on_device(name) and averages_floats(name)
    mixed = f"cpu:gloo,cuda:{name}"
    assert is_nccl(mixed) and waits_on_device(mixed)
    # A tensor on the CPU goes to gloo, and not every release of gloo averages.
    assert not averages_floats(mixed)
    assert names_in(mixed) == ["gloo", name.lower()]


@pytest.mark.parametrize("name", ON_HOST)
def test_a_backend_of_the_host_is_none_of_them(name):
    assert not is_nccl(name) and not waits_on_device(name)


@pytest.mark.parametrize("name", ("xccl", "ucc", "cpu:gloo,xpu:xccl"))
def test_waits_on_other_devices_are_not_seen_either(name):
    assert waits_on_device(name) and not is_nccl(name)


def test_who_averages_floats_is_known_and_others_are_summed_and_divided():
    assert all(
        averages_floats(name) for name in ("smddp", "paceline", "paceline_mpi", "xccl", "cpu:paceline,cuda:nccl2")
    )
    assert not any(averages_floats(name) for name in ("gloo", "mpi", "ucc", "undefined"))


@pytest.mark.parametrize("name", [*NCCL, "gloo", "custom"])
def test_tensors_stay_on_the_device_for_whatever_a_group_of_nccl_calls_itself(name):
    torch = pytest.importorskip("torch")
    from paceline.parts.comm.strategies.on_device import is_on_device

    group = SimpleNamespace(_get_backend=lambda device: SimpleNamespace(name=lambda: name))
    assert is_on_device(group, torch.device("cuda", 0)) == (name in NCCL)
    assert not is_on_device(group, torch.device("cpu"))


@pytest.mark.parametrize("name", NCCL)
def test_a_script_of_smdistributed_gets_smddp_for_every_nccl_where_there_is_no_gpu(name):
    torch = pytest.importorskip("torch")
    from paceline.parts.sagemaker.smdistributed.calls import chosen_backend

    assert chosen_backend(name, {}) == (name if torch.cuda.is_available() else "smddp")


COMPARED = re.compile(r"""[=!]= *["'][nx]ccl|["'][nx]ccl["'] (not )?in |\bin \([^)\n]*["'][nx]ccl""")


def test_no_other_file_in_a_rank_compares_the_name():
    package = Path(paceline.__file__).parent
    for folder in ("parts/comm", "worker"):
        texts = {path: path.read_text() for path in (package / folder).rglob("*.py")}
        assert texts and not [path for path, text in texts.items() if COMPARED.search(text)]
