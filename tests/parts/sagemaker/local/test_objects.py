"""URLs, what lies below them, and what a job leaves."""

import io
import json
import socket
import tarfile
from pathlib import Path

import pytest

from paceline.parts.sagemaker.local.app import is_named_directly
from paceline.parts.sagemaker.local.artifacts import Checkpoints, combined, upload
from paceline.parts.sagemaker.local.objects import TransferFailed, TransferStopped, inside, storage_url
from paceline.parts.sagemaker.local.opt_ml import HostDir, lay_channels, lay_code
from paceline.parts.sagemaker.local.sts import answer

pytest.importorskip("fsspec", reason="pip install 'paceline[sagemaker]'")


@pytest.fixture
def hosts(tmp_path):
    from paceline.contract.tree import Tree, lay_directories

    found = [
        HostDir(name=f"algo-{n}", group="g", instance_type="local", tree=Tree(tmp_path / f"algo-{n}")) for n in (1, 2)
    ]
    for place in found:
        lay_directories(place.tree)
    return found


@pytest.mark.parametrize(
    ("url", "as_storage_has_it"),
    [
        ("s3://b/a/c?d#e", "s3://b/a/c?d#e"),
        ("s3://b/a/", "s3://b/a/"),
        ("https://b.s3.eu-west-1.amazonaws.com/a", "s3://b/a"),
        ("file:///tmp/my%20data/", "file:///tmp/my data/"),
    ],
)
def test_every_form_of_a_url_becomes_one_that_storage_knows(url, as_storage_has_it):
    assert storage_url(url) == as_storage_has_it


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/etc/passwd"])
def test_no_name_leads_out_of_its_directory(key):
    with pytest.raises(TransferFailed):
        inside(Path("/t"), key)


def asking(uri, **source):
    channel = {
        "ChannelName": "train",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri, **source}},
    }
    return {"AlgorithmSpecification": {"TrainingInputMode": "File"}, "InputDataConfig": [channel]}


def test_a_directory_is_a_channel_as_it_is(hosts, tmp_path):
    (tmp_path / "my data").mkdir()
    (tmp_path / "my data/a").write_text("1")
    assert lay_channels(asking((tmp_path / "my data").as_uri()), hosts, tmp_path, lambda: True) == []
    assert [place.tree.channel("train").readlink() for place in hosts] == [tmp_path / "my data"] * 2


def test_a_sharded_channel_is_dealt_out_in_the_order_of_s3s_keys(hosts, tmp_path):
    for name in ("b", "a/z", "B"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text(name)
    request = asking((tmp_path / "data").as_uri(), S3DataDistributionType="ShardedByS3Key")
    lay_channels(request, hosts, tmp_path, lambda: True)
    found = [
        sorted(str(path.relative_to(place.tree.channel("train"))) for path in place.tree.channel("train").rglob("*"))
        for place in hosts
    ]
    assert found == [["B", "b"], ["a", "a/z"]]


@pytest.mark.parametrize("there", [False, True])
def test_a_prefix_without_an_object_is_refused_in_sagemakers_words(hosts, tmp_path, there):
    if there:
        (tmp_path / "data").mkdir()
    with pytest.raises(TransferFailed, match="No S3 objects found under S3 URL"):
        lay_channels(asking((tmp_path / "data").as_uri()), hosts, tmp_path, lambda: True)


def manifest(tmp_path):
    for name in ("one", "deep/two", "three"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text(name)
    content = [{"prefix": f"{(tmp_path / 'data').as_uri()}/"}, "one", "deep/two"]
    (tmp_path / "list.manifest").write_text(json.dumps(content))
    return asking((tmp_path / "list.manifest").as_uri(), S3DataType="ManifestFile")


def test_a_manifest_names_the_files_of_a_channel(hosts, tmp_path):
    lay_channels(manifest(tmp_path), hosts, tmp_path, lambda: True)
    for place in hosts:
        files = [path for path in place.tree.channel("train").rglob("*") if path.is_file()]
        assert sorted(path.read_text() for path in files) == ["deep/two", "one"]


def test_what_is_no_manifest_is_named(hosts, tmp_path):
    request = manifest(tmp_path)
    (tmp_path / "list.manifest").write_text("no")
    with pytest.raises(TransferFailed, match=r"list\.manifest"):
        lay_channels(request, hosts, tmp_path, lambda: True)


def test_a_job_that_is_to_end_fetches_no_more(hosts, tmp_path):
    with pytest.raises(TransferStopped):
        lay_channels(manifest(tmp_path), hosts, tmp_path, lambda: False)


def test_code_that_is_not_there_is_named(hosts, tmp_path):
    with pytest.raises(TransferFailed, match="No such file or directory"):
        lay_code((tmp_path / "no").as_uri(), hosts, tmp_path)


def packed(path, name, text="print()"):
    content = text.encode()
    with tarfile.open(path, "w:gz") as file:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        file.addfile(member, io.BytesIO(content))
    return path


def test_code_is_unpacked_on_every_host(hosts, tmp_path):
    lay_code(packed(tmp_path / "s.tar.gz", "train.py").as_uri(), hosts, tmp_path)
    assert all((place.tree.code / "train.py").read_text() == "print()" for place in hosts)


def test_code_may_come_in_a_channel(hosts, tmp_path):
    for place in hosts:
        place.tree.channel("code").mkdir()
        packed(place.tree.channel("code") / "sourcedir.tar.gz", "train.py")
    lay_code("/opt/ml/input/data/code/sourcedir.tar.gz", hosts, tmp_path)
    assert (hosts[1].tree.code / "train.py").exists()


@pytest.mark.parametrize("name", ["../train.py", "/train.py/../../x"])
def test_code_that_leads_out_of_its_directory_is_refused(hosts, tmp_path, name):
    with pytest.raises(TransferFailed):
        lay_code(packed(tmp_path / "s.tar.gz", name).as_uri(), hosts, tmp_path)


def test_what_is_no_archive_is_named(hosts, tmp_path):
    (tmp_path / "s.tar.gz").write_text("no")
    with pytest.raises(TransferFailed, match=r"s\.tar\.gz"):
        lay_code((tmp_path / "s.tar.gz").as_uri(), hosts, tmp_path)


def test_equal_names_of_two_hosts_are_both_kept_where_they_differ(hosts):
    for place, text in zip(hosts, ("first", "second"), strict=True):
        (place.tree.model / "weights").write_text(text)
        (place.tree.model / "same").write_text("same")
    files, clashes = combined((place.name, place.tree.model) for place in hosts)
    assert sorted(files) == ["same", "weights", "weights.algo-2"]
    assert len(clashes) == 1 and "weights of algo-2 differs" in clashes[0]


def test_archives_go_below_the_jobs_name(hosts, tmp_path):
    (hosts[0].tree.model / "weights").write_text("w")
    (hosts[1].tree.output_data / "note").write_text("n")
    request = {"OutputDataConfig": {"S3OutputPath": (tmp_path / "out").as_uri()}}
    url, _ = upload(request, "job", hosts, tmp_path, with_model=True)
    assert url == f"{(tmp_path / 'out').as_uri()}/job/output/model.tar.gz"
    for kind, name in (("model", "weights"), ("output", "note")):
        with tarfile.open(tmp_path / "out/job/output" / f"{kind}.tar.gz") as archive:
            assert archive.getnames() == [name]


def test_a_failed_job_leaves_its_output_and_no_model(hosts, tmp_path):
    request = {"OutputDataConfig": {"S3OutputPath": (tmp_path / "out").as_uri()}}
    assert upload(request, "job", hosts, tmp_path, with_model=False) == (None, [])
    assert not (tmp_path / "out").exists()


def keeping(tmp_path, hosts):
    return Checkpoints({"CheckpointConfig": {"S3Uri": (tmp_path / "kept").as_uri()}}, hosts)


def test_checkpoints_are_sent_when_they_change_and_fetched_by_the_next_job(hosts, tmp_path):
    first = keeping(tmp_path, hosts[:1])
    first.fetch(lambda: True)
    (hosts[0].tree.checkpoints / "step-1").write_text("1")
    first.send()
    assert not (tmp_path / "kept").exists(), "it may have been half written"
    first.send()
    (tmp_path / "kept/step-1").unlink()
    first.send()
    assert not (tmp_path / "kept/step-1").exists(), "it was sent again although it had not changed"
    (hosts[0].tree.checkpoints / "step-2").write_text("2")
    assert first.send(final=True) == []
    keeping(tmp_path, hosts[1:]).fetch(lambda: True)
    assert (hosts[1].tree.checkpoints / "step-2").read_text() == "2"
    assert [path.name for path in hosts[1].tree.checkpoints.iterdir()] == ["step-2"]


def test_one_checkpoint_name_of_two_hosts_is_told(hosts, tmp_path):
    checkpoints = keeping(tmp_path, hosts)
    for place in hosts:
        (place.tree.checkpoints / "step-1").write_text(place.name)
        (place.tree.checkpoints / "same").write_text("same")
    (line,) = checkpoints.send(final=True)
    assert line == "checkpoint step-1 was written by algo-1, algo-2 with different content; that of algo-1 is kept"
    assert (tmp_path / "kept/step-1").read_text() == "algo-1"


def test_a_job_without_checkpoints_has_none_to_send(hosts, tmp_path):
    checkpoints = Checkpoints({}, hosts)
    checkpoints.fetch(lambda: True)
    assert checkpoints.send(final=True) == []


@pytest.mark.parametrize("host", ["127.0.0.1:8090", "localhost:1", "[::1]:8090", "10.0.0.7", socket.gethostname()])
def test_the_server_answers_to_its_address(host):
    assert is_named_directly(host)


@pytest.mark.parametrize("host", ["page.example", "page.example:8090", "127.0.0.1.page.example", ""])
def test_the_server_does_not_answer_to_a_strangers_name(host):
    assert not is_named_directly(host)


def test_a_client_may_ask_who_it_is_and_not_what_a_role_may():
    status, text = answer(b"Action=GetCallerIdentity&Version=2011-06-15")
    assert status == 200 and "<Account>000000000000</Account>" in text
    status, text = answer(b"Action=SimulatePrincipalPolicy")
    assert status == 403 and "<Code>AccessDenied</Code>" in text
