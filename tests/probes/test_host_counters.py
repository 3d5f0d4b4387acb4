import pytest

from paceline.probes import host_counters
from paceline.probes.environment import parse_cpu_model, parse_os_release, relevant_variables


def test_the_cpu_line_is_seconds_of_all_cpus(recorded):
    times = host_counters.parse_stat(recorded("stat"))
    assert times.busy_seconds == pytest.approx((118689 + 5553 + 21327 + 0 + 307) / 100)
    assert (times.idle_seconds, times.iowait_seconds, times.steal_seconds) == (2271.92, 6.17, 0.55)


def test_fractions_of_the_time_between_two_readings_add_up_to_one():
    before = host_counters.CpuTimes(busy_seconds=10, idle_seconds=10, iowait_seconds=0, steal_seconds=0)
    after = host_counters.CpuTimes(busy_seconds=11, idle_seconds=12.5, iowait_seconds=0.25, steal_seconds=0.25)
    found = host_counters.cpu_fractions(before, after)
    assert found == {"busy_fraction": 0.25, "iowait_fraction": 0.0625, "steal_fraction": 0.0625}
    assert host_counters.cpu_fractions(before, before) is None


def test_memory_used_is_what_is_not_available(recorded):
    found = host_counters.memory_facts(host_counters.parse_meminfo(recorded("meminfo")))
    assert found["total_bytes"] == 24684084 * 1024
    assert found["used_bytes"] + found["available_bytes"] == found["total_bytes"]
    assert found["swap_used_bytes"] == 0


def test_interfaces_without_traffic_are_left_out(recorded):
    found = host_counters.parse_net_dev(recorded("net_dev"))
    assert set(found) == {"lo", "eth0"}
    assert found["eth0"].received_bytes > 3_000_000_000


def test_disks_are_whole_and_real(recorded):
    found = host_counters.parse_diskstats(recorded("diskstats"))
    assert set(found) == {"vda"}
    assert found["vda"].read_bytes % 512 == 0
    line = " 259 0 {} 11 0 100 5 9 6 200 4 0 6 54"
    names = (
        "nvme0n1",
        "nvme0n1p1",
        "sda",
        "sda1",
        "md0",
        "dm-0",
        "mmcblk0",
        "mmcblk0p2",
        "xvda",
        "xvda1",
        "xvdf",
        "loop3",
        "zram0",
        "sdaa",
        "sdaa3",
    )
    assert set(host_counters.parse_diskstats("\n".join(line.format(name) for name in names))) == {
        "nvme0n1",
        "sda",
        "md0",
        "dm-0",
        "mmcblk0",
        "xvda",
        "xvdf",
        "sdaa",
    }


def test_pressure_is_total_stalled_seconds(recorded):
    found = host_counters.parse_pressure(recorded("pressure_cpu"))
    assert set(found) == {"some_seconds", "full_seconds"}
    assert found["some_seconds"] > 1
    assert host_counters.parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\n") == {
        "some_seconds": 2.5
    }


def test_the_operating_system_and_the_cpu_have_names(recorded):
    assert parse_os_release(recorded("os_release")) == "Debian GNU/Linux 12 (bookworm)"
    assert parse_cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\n") == "AMD EPYC"
    assert parse_cpu_model("processor\t: 0\nBogoMIPS\t: 50.00\n") is None


def test_variables_that_concern_a_job_are_shown_and_secrets_are_not():
    environ = {
        "NCCL_DEBUG": "INFO",
        "MASTER_ADDR": "algo-1",
        "SLURM_JOB_ID": "7",
        "HOME": "/root",
        "PACELINE_TOKEN": "abc",
        "SM_HP_API-KEY": "abc",
        "SM_HP_APIKEY": "abc",
        "SLURM_JWT_SECRET": "abc",
        "SM_HPS": '{"api_key": "abc"}',
        "SM_USER_ARGS": '["--key", "abc"]',
        "SM_HP_LR": "1" * 200,
        "RANK": "0",
    }
    shown = relevant_variables(environ)
    assert shown["NCCL_DEBUG"] == "INFO"
    assert "HOME" not in shown
    assert "abc" not in "".join(shown.values())
    assert shown["PACELINE_TOKEN"] == shown["SM_HP_API-KEY"] == "***"
    assert len(shown["SM_HP_LR"]) == 120
    assert list(shown) == sorted(shown)
