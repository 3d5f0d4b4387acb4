import os

import pytest

from paceline.contract.channels import (
    check_channel,
    is_fetched,
    keys,
    lay_channel,
    parse_channel,
    parse_channels,
    shares,
    unequal_shards,
)
from paceline.errors import UsageError
from paceline.facts import Channel
from paceline.findings import Severity

SHARDED = "ShardedByS3Key"
TWELVE = tuple(f"algo-{number}" for number in range(1, 13))


def files(directory, *names):
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return directory


def below(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir())


def test_a_channel_is_a_name_and_a_directory():
    assert parse_channel("train=/data") == Channel(name="train", source="/data", distribution="FullyReplicated")


@pytest.mark.parametrize("distribution", ["FullyReplicated", "ShardedByS3Key"])
def test_a_distribution_may_follow_the_directory(distribution):
    assert parse_channel(f"train=/data:{distribution}") == Channel(
        name="train", source="/data", distribution=distribution
    )


def test_a_directory_may_have_colons_and_equals_signs_in_its_name():
    assert parse_channel("train=/data/a:b=c").source == "/data/a:b=c"
    assert parse_channel("train=/data/a:b:ShardedByS3Key").source == "/data/a:b"


def test_a_relative_directory_and_a_file_address_become_absolute_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse_channel("train=data").source == str(tmp_path / "data")
    assert parse_channel("train=file:///data").source == "/data"


@pytest.mark.parametrize(
    "text", ["train", "=/data", "train=", "train=:ShardedByS3Key", "a b=/data", "..=/data", "x" * 65 + "=/data", "é=/d"]
)
def test_what_is_no_channel_is_refused_in_four_parts(text):
    with pytest.raises(UsageError) as refused:
        parse_channel(text)
    error = refused.value
    assert error.code == "U06"
    assert all((error.what, error.saw, error.next, error.more))


def test_a_channel_given_twice_is_refused():
    with pytest.raises(UsageError, match="'train' is given twice"):
        parse_channels(["train=/a", "train=/b"])


def test_a_twenty_first_channel_is_refused():
    texts = [f"c{number}=/data" for number in range(21)]
    assert len(parse_channels(texts[:20])) == 20
    with pytest.raises(UsageError) as refused:
        parse_channels(texts)
    assert "21" in refused.value.saw


def test_a_directory_that_is_not_there_is_refused_with_the_nearest_one(tmp_path):
    with pytest.raises(UsageError, match="does not exist") as refused:
        check_channel(Channel(name="train", source=str(tmp_path / "a" / "b")))
    assert str(tmp_path) in refused.value.saw


def test_a_misspelt_distribution_is_named_as_such(tmp_path):
    with pytest.raises(UsageError) as refused:
        check_channel(parse_channel(f"train={tmp_path}:ShardedByKey"))
    assert refused.value.saw == f"{tmp_path} is there; 'ShardedByKey' is no distribution"


def test_a_url_is_no_directory_of_this_machine():
    channel = parse_channel("train=s3://bucket/data")
    assert is_fetched(channel)
    with pytest.raises(UsageError) as refused:
        check_channel(channel)
    assert refused.value.saw == "a URL that was not fetched"


@pytest.mark.parametrize("words", [":ShardedByS3Key:ManifestFile:FastFile", ":FastFile:ShardedByS3Key:ManifestFile"])
def test_sagemakers_words_stand_behind_the_source_in_any_order(words):
    channel = parse_channel(f"train=s3://bucket/a:b{words}")
    assert (channel.source, channel.distribution) == ("s3://bucket/a:b", "ShardedByS3Key")
    assert (channel.data_type, channel.input_mode) == ("ManifestFile", "FastFile")


def test_a_file_url_is_a_directory_and_a_manifest_on_this_machine_is_a_url():
    assert parse_channel("train=file:///data").source == "/data"
    assert parse_channel("train=/data/list.json:ManifestFile").source == "file:///data/list.json"


def test_an_empty_directory_is_refused_as_sagemaker_does(tmp_path):
    with pytest.raises(UsageError, match="is empty"):
        check_channel(Channel(name="train", source=str(tmp_path)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_without_permission_is_refused(tmp_path):
    closed = files(tmp_path / "closed", "a")
    closed.chmod(0)
    with pytest.raises(UsageError, match="not readable"):
        check_channel(Channel(name="train", source=str(closed)))
    with pytest.raises(UsageError, match="not readable"):
        check_channel(Channel(name="train", source=str(closed / "below")))


def test_keys_come_in_the_order_of_s3(tmp_path):
    files(tmp_path, "b.csv", "a/2.csv", "a/10.csv", "a-1.csv", "Z.csv")
    assert keys(Channel(name="train", source=str(tmp_path))) == ("Z.csv", "a-1.csv", "a/10.csv", "a/2.csv", "b.csv")


def test_a_link_to_a_directory_is_followed_and_one_to_a_parent_is_not(tmp_path):
    data = files(tmp_path / "data", "a.csv")
    (data / "more").symlink_to(files(tmp_path / "elsewhere", "b.csv"))
    (data / "loop").symlink_to(data)
    assert keys(Channel(name="train", source=str(data))) == ("a.csv", "more/b.csv")


@pytest.mark.parametrize("count", [0, 1, 11, 12, 13, 100])
def test_shares_are_disjoint_complete_and_as_equal_as_can_be(count):
    all_keys = [f"part-{number:05}" for number in range(count)]
    dealt = shares(all_keys, TWELVE)
    assert sorted(key for share in dealt.values() for key in share) == all_keys
    sizes = [len(share) for share in dealt.values()]
    assert max(sizes) - min(sizes) <= 1


def test_unequal_shards_are_a_warning_that_counts_the_files_of_each_host():
    channel = Channel(name="train", source="/data", distribution=SHARDED)
    finding = unequal_shards(channel, ["a", "b", "c"], ("algo-1", "algo-2"))
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert finding.saw == "algo-1: 2 files; algo-2: 1 file"
    assert "hang at the end of its epoch" in finding.what
    assert finding.next
    assert finding.more


def test_equal_shards_and_replicated_channels_are_no_finding():
    sharded = Channel(name="train", source="/data", distribution=SHARDED)
    replicated = Channel(name="train", source="/data")
    assert unequal_shards(sharded, ["a", "b"], ("algo-1", "algo-2")) is None
    assert unequal_shards(replicated, ["a", "b", "c"], ("algo-1", "algo-2")) is None


def test_a_host_without_any_file_is_part_of_the_warning():
    channel = Channel(name="train", source="/data", distribution=SHARDED)
    finding = unequal_shards(channel, ["a", "b"], TWELVE)
    assert finding is not None
    assert finding.saw == "algo-1, algo-2: 1 file; algo-3 ... algo-12 (10 hosts): 0 files"


def test_a_replicated_channel_is_one_link(tmp_path):
    data = files(tmp_path / "data", "a.csv")
    target = tmp_path / "train"
    for _ in range(2):
        lay_channel(Channel(name="train", source=str(data)), target, None)
    assert target.readlink() == data


def test_a_file_can_be_a_channel(tmp_path):
    data = files(tmp_path, "a.csv") / "a.csv"
    lay_channel(Channel(name="train", source=str(data)), tmp_path / "train", None)
    assert (tmp_path / "train" / "a.csv").read_text() == "a.csv"


def test_a_sharded_channel_holds_only_this_hosts_files(tmp_path):
    data = files(tmp_path / "data", "x/a.csv", "x/b.csv", "c.csv")
    target = tmp_path / "train"
    lay_channel(Channel(name="train", source=str(data), distribution=SHARDED), target, ["c.csv", "x/b.csv"])
    assert below(target) == ["c.csv", "x/b.csv"]
    assert (target / "x" / "b.csv").read_text() == "x/b.csv"


def test_when_the_number_of_hosts_changes_the_old_share_goes_and_the_data_stays(tmp_path):
    data = files(tmp_path / "data", "a.csv", "b.csv")
    target = tmp_path / "train"
    channel = Channel(name="train", source=str(data), distribution=SHARDED)
    lay_channel(channel, target, ["a.csv"])
    lay_channel(channel, target, ["b.csv"])
    assert below(target) == ["b.csv"]
    lay_channel(channel, target, None)
    assert below(data) == ["a.csv", "b.csv"]
    lay_channel(channel, target, ["a.csv"])
    assert below(target) == ["a.csv"]
    assert below(data) == ["a.csv", "b.csv"]


def test_files_of_somebody_else_are_never_removed(tmp_path):
    data = files(tmp_path / "data", "a.csv")
    target = files(tmp_path / "train", "precious.csv")
    with pytest.raises(UsageError, match="did not put there"):
        lay_channel(Channel(name="train", source=str(data)), target, None)
    assert below(target) == ["precious.csv"]


def test_a_channel_that_already_lies_in_its_place_is_left_there(tmp_path):
    target = files(tmp_path / "train", "a.csv")
    lay_channel(Channel(name="train", source=str(target)), target, None)
    assert below(target) == ["a.csv"]
