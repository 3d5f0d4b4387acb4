"""The type of a rented machine, from what lies on it."""

import json

import pytest

from paceline.catalog.lookup import machine_type
from paceline.probes.instance import price_of, read_instance


def on(tmp_path, *, vendor=None, product=None, sagemaker=None, **environ):
    for name, text in (("sys_vendor", vendor), ("product_name", product)):
        if text is not None:
            (tmp_path / name).write_text(f"{text}\n")
    file = tmp_path / "resourceconfig.json"
    if sagemaker is not None:
        file.write_text(sagemaker)
    return read_instance(environ, tmp_path, file)


def test_a_machine_of_ec2_is_known_by_its_dmi(tmp_path):
    found = on(tmp_path, vendor="Amazon EC2", product="p4d.24xlarge", AWS_REGION="eu-west-1")
    assert (found["instance_type"], found["region"]) == ("p4d.24xlarge", "eu-west-1")
    assert found["usd_per_hour"] == machine_type("p4d.24xlarge").usd_per_hour and found["price_from"]


def test_sagemaker_names_its_own_type_and_its_own_price(tmp_path):
    found = on(tmp_path, sagemaker=json.dumps({"current_instance_type": "ml.p4d.24xlarge"}))
    assert found["instance_type"] == "ml.p4d.24xlarge" and "SageMaker" in found["instance_from"]
    assert found == {**found, **price_of(machine_type("p4d.24xlarge"), by_sagemaker=True)}


@pytest.mark.parametrize("text", ["", "[]", "7", '{"current_instance_type": 7}', '{"current_instance_type": "local"}'])
def test_any_other_machine_has_nothing(tmp_path, text):
    found = on(tmp_path, vendor="QEMU", product="Standard PC", sagemaker=text)
    assert set(found.values()) == {None}


def test_a_type_that_the_catalogue_does_not_know_has_no_price(tmp_path):
    found = on(tmp_path, vendor="Amazon EC2", product="z99.huge")
    assert (found["instance_type"], found["usd_per_hour"], found["price_from"]) == ("z99.huge", None, None)
