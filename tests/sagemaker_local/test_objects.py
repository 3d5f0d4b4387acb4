"""URLs, what lies below them, and what a job leaves."""

import io
import socket
import tarfile
from pathlib import Path

import pytest

from paceline.sagemaker_local.app import is_named_directly
from paceline.sagemaker_local.artifacts import Checkpoints, combined, upload
from paceline.sagemaker_local.objects import Objects, TransferFailed, below_prefix, inside, joined, split
from paceline.sagemaker_local.opt_ml import HostDir, lay_code
from paceline.sagemaker_local.sts import answer

pytest.importorskip("botocore", reason="pip install 'paceline[sagemaker]'")


@pytest.fixture
def hosts(tmp_path):
    from paceline.contract.tree import Tree, lay_directories

    found = [
        HostDir(name=f"algo-{n}", group="g", instance_type="local", tree=Tree(tmp_path / f"algo-{n}")) for n in (1, 2)
    ]
    for place in found:
        lay_directories(place.tree)
    return found


def test_a_url_is_a_bucket_and_a_key():
    assert split("s3://b/a/c?d#e") == ("b", "a/c?d#e")
    assert split("https://b.s3.eu-west-1.amazonaws.com/a") == ("b", "a")


@pytest.mark.parametrize("prefix", ["a", "a/", "a/b.txt", "a/b"])
def test_an_objects_path_follows_its_prefix(prefix):
    assert below_prefix("a/b.txt", prefix) == "b.txt"


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/etc/passwd"])
def test_no_key_leads_out_of_its_directory(key):
    with pytest.raises(TransferFailed):
        inside(Path("/t"), key)


def test_a_directory_is_listed_as_a_bucket_would_be(tmp_path):
    for name in ("b", "a/z", "B"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert [one.key for one in Objects().below(tmp_path.as_uri())] == ["B", "a/z", "b"]


def test_what_cannot_be_fetched_is_named(tmp_path):
    with pytest.raises(TransferFailed, match="No such file or directory"):
        Objects().fetch((tmp_path / "no").as_uri(), tmp_path / "copy")


def packed(path, name, text="print()"):
    content = text.encode()
    with tarfile.open(path, "w:gz") as file:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        file.addfile(member, io.BytesIO(content))
    return path


def test_code_is_unpacked_on_every_host(hosts, tmp_path):
    lay_code(packed(tmp_path / "s.tar.gz", "train.py").as_uri(), hosts, tmp_path, Objects())
    assert all((place.tree.code / "train.py").read_text() == "print()" for place in hosts)


def test_code_may_come_in_a_channel(hosts, tmp_path):
    for place in hosts:
        place.tree.channel("code").mkdir()
        packed(place.tree.channel("code") / "sourcedir.tar.gz", "train.py")
    lay_code("/opt/ml/input/data/code/sourcedir.tar.gz", hosts, tmp_path, Objects())
    assert (hosts[1].tree.code / "train.py").exists()


@pytest.mark.parametrize("name", ["../train.py", "/train.py/../../x"])
def test_code_that_leads_out_of_its_directory_is_refused(hosts, tmp_path, name):
    with pytest.raises(TransferFailed):
        lay_code(packed(tmp_path / "s.tar.gz", name).as_uri(), hosts, tmp_path, Objects())


def test_what_is_no_archive_is_named(hosts, tmp_path):
    (tmp_path / "s.tar.gz").write_text("no")
    with pytest.raises(TransferFailed, match=r"s\.tar\.gz"):
        lay_code((tmp_path / "s.tar.gz").as_uri(), hosts, tmp_path, Objects())


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
    url, _ = upload(request, "job", hosts, tmp_path, Objects(), with_model=True)
    assert url == joined((tmp_path / "out").as_uri(), "job/output/model.tar.gz")
    for kind, name in (("model", "weights"), ("output", "note")):
        with tarfile.open(tmp_path / "out/job/output" / f"{kind}.tar.gz") as archive:
            assert archive.getnames() == [name]


def test_a_failed_job_leaves_its_output_and_no_model(hosts, tmp_path):
    request = {"OutputDataConfig": {"S3OutputPath": (tmp_path / "out").as_uri()}}
    assert upload(request, "job", hosts, tmp_path, Objects(), with_model=False) == (None, [])
    assert not (tmp_path / "out").exists()


def test_checkpoints_are_sent_when_they_change_and_fetched_by_the_next_job(hosts, tmp_path):
    request = {"CheckpointConfig": {"S3Uri": (tmp_path / "kept").as_uri()}}
    first = Checkpoints(request, hosts[:1], Objects())
    (hosts[0].tree.checkpoints / "step-1").write_text("1")
    first.send()
    (tmp_path / "kept/step-1").unlink()
    first.send()
    assert not (tmp_path / "kept/step-1").exists(), "it was sent again although it had not changed"
    (hosts[0].tree.checkpoints / "step-2").write_text("2")
    first.send()
    Checkpoints(request, hosts[1:], Objects()).fetch(lambda: True)
    assert (hosts[1].tree.checkpoints / "step-2").read_text() == "2"


def test_one_checkpoint_name_of_two_hosts_is_told(hosts, tmp_path):
    checkpoints = Checkpoints({"CheckpointConfig": {"S3Uri": (tmp_path / "kept").as_uri()}}, hosts, Objects())
    for place in hosts:
        (place.tree.checkpoints / "step-1").write_text(place.name)
    assert len(checkpoints.send()) == 1


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
