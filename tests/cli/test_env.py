"""`paceline env`: what it prints, and that it looks without touching torch."""

import json
import os
import subprocess
import sys

import msgspec
import pytest

from paceline.views.env import EnvDocument, env_text

SECTIONS = {
    "paceline": {"version": "0.1.0"},
    "packages": {"msgspec": "0.22.0", "py-spy": None},
    "python": {"version": "3.11.7", "executable": "/venv/bin/python"},
    "torch": {
        "version": "2.13.0+cpu",
        "cuda": None,
        "reason": "",
        "not_tried": "",
        "features": [
            {"name": "flight recorder", "for": "which collective of NCCL each rank is in", "found": True, "reason": ""},
            {"name": "nccl", "for": "collectives on NVIDIA GPUs", "found": False, "reason": ""},
        ],
    },
    "system": {
        "os": "Debian GNU/Linux 12 (bookworm)",
        "kernel": "6.1.0",
        "architecture": "x86_64",
        "libc": "glibc 2.36",
    },
    "cpu": {"model": "AMD EPYC", "count": 8, "usable_count": 4, "quota_cpus": 1.5, "cgroup_version": 2},
    "memory": {
        "total_bytes": 16 << 30,
        "available_bytes": 12 << 30,
        "used_bytes": 4 << 30,
        "swap_used_bytes": 0,
        "cgroup_limit_bytes": None,
        "cgroup_used_bytes": None,
        "cgroup_version": None,
        "shm": {"total_bytes": 64 << 20, "available_bytes": 60 << 20},
    },
    "namespaces": {"allowed": False, "reason": "unshare: Operation not permitted"},
    "gpus": {
        "devices": [
            {
                "index": 0,
                "name": "NVIDIA H200",
                "uuid": "GPU-1",
                "memory_bytes": 141 << 30,
                "pci_address": "0000:1b:00.0",
                "mig": False,
                "mig_uuids": [],
            }
        ],
        "reason": "",
        "visible_count": 0,
        "visible_reason": "CUDA_VISIBLE_DEVICES='' hides every GPU",
    },
    "interfaces": [
        {"name": "eth0", "up": True, "addresses": ["10.0.0.2"], "speed_mbps": 25000, "mtu_bytes": 9001},
        {"name": "eth1", "up": False, "addresses": [], "speed_mbps": None, "mtu_bytes": 1500},
    ],
    "limits": {"open_files": 1024, "locked_memory_bytes": None},
    "variables": {"NCCL_DEBUG": "INFO", "PACELINE_TOKEN": "***"},
}

TEXT = """\
paceline      0.1.0
              msgspec 0.22.0, py-spy not installed
python        3.11.7  /venv/bin/python
torch         2.13.0+cpu
              flight recorder   found      which collective of NCCL each rank is in
              nccl              not there  collectives on NVIDIA GPUs
system        Debian GNU/Linux 12 (bookworm)  kernel 6.1.0  x86_64  glibc 2.36
cpu           4 of 8 usable, quota 1.5 CPUs (cgroup v2)  AMD EPYC
memory        16 GiB, 12 GiB available, no limit (no control group seen)
/dev/shm      64 MiB, 60 MiB available
namespaces    refused: unshare: Operation not permitted (--local-hosts then translates addresses)
gpu           1 in this machine; 0 visible to a rank; CUDA_VISIBLE_DEVICES='' hides every GPU
              0  NVIDIA H200  141 GiB  0000:1b:00.0
network       eth0  10.0.0.2  25 Gbit/s  MTU 9001
              eth1  no address  speed unknown  MTU 1500  down
limits        open files 1024, locked memory no limit
variables     NCCL_DEBUG=INFO
              PACELINE_TOKEN=***"""


def test_the_environment_is_half_a_screen_of_text():
    assert env_text(msgspec.convert(SECTIONS, EnvDocument)) == TEXT


def test_what_was_not_looked_at_is_listed_with_its_reason():
    names, reason = ("flight recorder", "worker server"), "paceline env --torch"
    torch = {
        "version": "2.6.0",
        "cuda": None,
        "reason": "",
        "not_tried": "torch 2.99.0 was never tried",
        "features": [{"name": name, "for": "a", "found": None, "reason": reason} for name in names],
    }
    gpus = {"devices": None, "reason": "NVML: Shared Library Not Found", "visible_count": None, "visible_reason": ""}
    text = env_text(msgspec.convert({**SECTIONS, "torch": torch, "gpus": gpus}, EnvDocument))
    assert "not judged (paceline env --torch): flight recorder, worker server" in text
    assert "\n              torch 2.99.0 was never tried\n" in text
    assert "gpu           not judged: NVML: Shared Library Not Found" in text
    absent = {"version": None, "cuda": None, "reason": "torch is not installed for /venv/bin/python", "features": []}
    assert "torch         not judged: torch is not installed" in env_text(
        msgspec.convert({**SECTIONS, "torch": absent}, EnvDocument)
    )


@pytest.mark.process
def test_the_verb_prints_json_without_loading_torch():
    code = (
        "import sys; from paceline.cli import main; code = main(['env', '--json'])\n"
        "assert not [name for name in ('torch', 'numpy') if name in sys.modules]; raise SystemExit(code)"
    )
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PACELINE_TOKEN": "verysecret",
        "NCCL_DEBUG": "INFO",
    }
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True)
    assert "verysecret" not in done.stdout
    facts = json.loads(done.stdout)
    assert facts["schema"] == "paceline.env/2"
    assert set(facts) == {"schema", *SECTIONS}
    assert facts["variables"]["NCCL_DEBUG"] == "INFO"
    assert all(
        set(facts[name]) == set(SECTIONS[name])
        for name in ("python", "torch", "system", "cpu", "memory", "namespaces", "gpus")
    )
