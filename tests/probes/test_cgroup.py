from pathlib import Path

from paceline.probes import cgroup
from paceline.probes.cgroup import ControlGroup, Mount


def write(directory: Path, **files: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)
    return directory


def test_membership_names_each_controller(recorded):
    found = cgroup.parse_membership(recorded("cgroup_v1"))
    assert found["memory"] == "/jobs/one"
    assert found["cpu"] == "/"
    assert found[""] == "/"
    assert cgroup.parse_membership("4:cpu,cpuacct:/a:b\n")["cpuacct"] == "/a:b"


def test_version_one_is_used_where_it_holds_the_controller(recorded):
    mounts = cgroup.parse_mounts(recorded("mountinfo_v1"))
    assert {mount.point: mount.version for mount in mounts}["/sys/fs/cgroup/unified"] == 2
    found = cgroup.locate("cpu", {"cpu": "/", "": "/"}, mounts)
    assert (found.directory, found.version) == (Path("/sys/fs/cgroup/cpu"), 1)


def test_version_two_is_used_where_no_hierarchy_holds_the_controller(tmp_path):
    group = write(tmp_path / "user.slice" / "job")
    found = cgroup.locate(
        "memory", {"": "/user.slice/job"}, (Mount(point=str(tmp_path), root="/", version=2, controllers=frozenset()),)
    )
    assert (found.directory, found.version) == (group, 2)
    assert list(found.and_parents()) == [group, tmp_path / "user.slice", tmp_path]


def test_a_container_that_sees_only_its_own_group_finds_it_at_the_top(tmp_path):
    mount = Mount(point=str(tmp_path), root="/docker/abc", version=1, controllers=frozenset({"memory"}))
    assert cgroup.locate("memory", {"memory": "/docker/abc"}, (mount,)).directory == tmp_path
    assert cgroup.locate("memory", {"memory": "/../.."}, (mount,)).directory == tmp_path
    assert cgroup.locate("memory", {"memory": "/elsewhere"}, (mount,)).directory == tmp_path
    assert cgroup.locate("memory", {}, (mount,)) is None


def test_the_smallest_limit_up_to_the_top_counts(tmp_path):
    write(tmp_path, memory__max="max\n")
    write(tmp_path / "a", memory__max="1048576\n")
    inner = write(
        tmp_path / "a" / "b",
        memory__max="max\n",
        memory__current="4096\n",
        memory__peak="8192\n",
        memory__events="low 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n",
    )
    found = cgroup.memory_counters(ControlGroup(directory=inner, top=tmp_path, version=2))
    assert (found.limit_bytes, found.used_bytes, found.peak_bytes, found.oom_kills) == (1048576, 4096, 8192, 2)


def test_version_one_writes_no_limit_as_its_largest_number(tmp_path):
    group = write(
        tmp_path,
        memory__limit_in_bytes="9223372036854771712\n",
        memory__usage_in_bytes="1\n",
        memory__max_usage_in_bytes="2\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
    )
    found = cgroup.memory_counters(ControlGroup(directory=group, top=group, version=1))
    assert (found.limit_bytes, found.used_bytes, found.peak_bytes, found.oom_kills) == (None, 1, 2, 5)


def test_a_file_that_is_not_there_is_unknown(tmp_path):
    group = ControlGroup(directory=tmp_path, top=tmp_path, version=2)
    assert cgroup.memory_counters(group).oom_kills is None
    assert cgroup.cpu_counters(group).throttled_seconds is None
    assert cgroup.oom_counters(None).group_kills is None


def test_throttling_is_seconds_in_both_versions(tmp_path, recorded):
    one = write(
        tmp_path / "one",
        cpu__stat="nr_periods 9\nnr_throttled 4\nthrottled_time 2500000000\n",
        cpu__cfs_quota_us="150000\n",
        cpu__cfs_period_us="100000\n",
    )
    two = write(
        tmp_path / "two",
        cpu__stat="usage_usec 1\nnr_periods 9\nnr_throttled 4\nthrottled_usec 2500000\n",
        cpu__max="150000 100000\n",
    )
    for directory, version in ((one, 1), (two, 2)):
        found = cgroup.cpu_counters(ControlGroup(directory=directory, top=directory, version=version))
        assert (found.quota_cpus, found.periods, found.throttled_periods, found.throttled_seconds) == (1.5, 9, 4, 2.5)
    assert cgroup.parse_counters(recorded("cpu_stat_v1"))["nr_throttled"] == 0
    unlimited = write(tmp_path / "three", cpu__max="max 100000\n")
    assert cgroup.cpu_counters(ControlGroup(directory=unlimited, top=unlimited, version=2)).quota_cpus is None


def test_this_process_is_in_a_group_that_can_be_read_or_in_none():
    group = cgroup.control_group("memory")
    assert group is None or group.directory.is_dir()


def test_a_quota_that_runs_out_further_up_is_seen(tmp_path):
    write(tmp_path, cpu__max="max 100000\n")
    write(tmp_path / "a", cpu__max="50000 100000\n", cpu__stat="nr_periods 10\nnr_throttled 2\n")
    inner = write(tmp_path / "a" / "b", cpu__max="max 100000\n", cpu__stat="nr_periods 0\nnr_throttled 0\n")
    group = ControlGroup(directory=inner, top=tmp_path, version=2)
    before = cgroup.throttling(group)
    write(tmp_path / "a", cpu__stat="nr_periods 15\nnr_throttled 6\n")
    after = cgroup.throttling(group)
    assert (before.quota_cpus, cgroup.throttled_fraction(before, after)) == (0.5, 0.8)
    assert cgroup.throttled_fraction(after, after) == 0.0


def test_processes_are_counted_where_the_limit_is_nearest(tmp_path):
    write(tmp_path / "a", pids__current="95\n", pids__max="100\n")
    inner = write(tmp_path / "a" / "b", pids__current="10\n", pids__max="50\n")
    group = ControlGroup(directory=inner, top=tmp_path, version=1)
    assert cgroup.process_counts(group) == cgroup.ProcessCounts(used_count=95, limit_count=100)
    write(tmp_path / "a", pids__max="max\n")
    assert cgroup.process_counts(group) == cgroup.ProcessCounts(used_count=10, limit_count=50)


def test_a_frozen_group_of_version_one_is_thawed_where_it_was_frozen(tmp_path):
    write(tmp_path / "a", freezer__state="FROZEN\n", freezer__self_freezing="1\n")
    inner = write(tmp_path / "a" / "b", freezer__state="FROZEN\n", freezer__self_freezing="0\n")
    group = ControlGroup(directory=inner, top=tmp_path, version=1)
    assert cgroup.thawing_file(group) == str(tmp_path / "a" / "freezer.state")
    write(inner, freezer__state="THAWED\n")
    assert cgroup.thawing_file(group) == ""


def test_a_frozen_group_of_version_two(tmp_path):
    inner = write(tmp_path / "a", cgroup__events="populated 1\nfrozen 1\n", cgroup__freeze="1\n")
    group = ControlGroup(directory=inner, top=tmp_path, version=2)
    assert cgroup.thawing_file(group) == str(inner / "cgroup.freeze")
    write(inner, cgroup__events="populated 1\nfrozen 0\n")
    assert cgroup.thawing_file(group) == ""


def test_a_group_without_a_freezer_is_not_judged_and_the_top_one_cannot_be_frozen(tmp_path):
    inner = write(tmp_path / "a")
    assert cgroup.thawing_file(ControlGroup(directory=inner, top=tmp_path, version=2)) is None
    assert cgroup.thawing_file(ControlGroup(directory=tmp_path, top=tmp_path, version=2)) == ""
