import json

import pytest

from paceline.contract.hyperparameters import (
    as_delivered,
    framework_parameters,
    from_wire,
    legal_name,
    parse_hyperparameter,
    read_hyperparameters,
    to_arguments,
    to_environment,
    to_wire,
)
from paceline.errors import UsageError


def arguments(values, profile):
    return to_arguments(as_delivered(values, profile), profile)


def environment(values, profile):
    return to_environment(as_delivered(values, profile), profile)


# The table of docs/contract.md, row by row: key, value, v2 wire, v2 argv, v2 SM_HP, v3 wire, v3 argv.
GOLDEN = [
    ("lr", 0.1, "0.1", ["--lr", "0.1"], "0.1", "0.1", ["--lr", "0.1"]),
    ("name", "bert base", '"bert base"', ["--name", "bert base"], "bert base", "bert base", ["--name", "bert base"]),
    ("flag", True, "true", ["--flag", "True"], "true", "true", ["--flag", "true"]),
    ("flag", False, "false", ["--flag", "False"], "false", "false", ["--flag", "false"]),
    ("none", None, "null", ["--none", ""], "", "null", ["--none", "null"]),
    ("list", [1, "a"], '[1, "a"]', ["--list", "[1, 'a']"], '[1,"a"]', '[1, "a"]', ["--list", '[1, "a"]']),
    (
        "dict",
        {"b": 1, "a": "x y"},
        '{"b": 1, "a": "x y"}',
        ["--dict", "a=x y,b=1"],
        '{"a":"x y","b":1}',
        '{"b": 1, "a": "x y"}',
        ["--dict", '{"b": 1, "a": "x y"}'],
    ),
    ("five", "5", '"5"', ["--five", "5"], "5", "5", ["--five", "5"]),
    ("n", 3, "3", ["-n", "3"], "3", "3", ["--n", "3"]),
    ("k-v", 1, "1", ["--k-v", "1"], "1", "1", ["--k-v", "1"]),
    ("name", "it's", '"it\'s"', ["--name", "it's"], "it's", "it's", ["--name", "it's"]),
]


@pytest.mark.parametrize(("key", "value", "wire", "argv", "variable", "v3_wire", "v3_argv"), GOLDEN)
def test_a_golden_vector_of_sagemaker_is_reproduced(key, value, wire, argv, variable, v3_wire, v3_argv):
    assert to_wire({key: value}, "v2") == {key: wire}
    assert arguments({key: value}, "v2") == argv
    assert environment({key: value}, "v2")[f"SM_HP_{key.upper()}"] == variable
    assert to_wire({key: value}, "v3") == {key: v3_wire}
    assert arguments({key: value}, "v3") == v3_argv


def test_v2_sorts_arguments_by_key_and_v3_keeps_the_order_of_the_file():
    values = {"zeta": 1, "alpha": 2}
    assert arguments(values, "v2") == ["--alpha", "2", "--zeta", "1"]
    assert arguments(values, "v3") == ["--zeta", "1", "--alpha", "2"]


def test_v2_keeps_the_type_of_a_string_of_digits_and_v3_turns_it_into_a_number():
    assert json.loads(environment({"five": "5"}, "v2")["SM_HPS"]) == {"five": "5"}
    assert json.loads(environment({"five": "5"}, "v3")["SM_HPS"]) == {"five": 5}


def test_v2_has_the_dashed_variable_and_the_one_that_a_shell_can_name():
    variables = environment({"k-v": 1}, "v2")
    assert variables["SM_HP_K-V"] == variables["SM_HP_K_V"] == "1"


def test_v3_has_only_the_variable_that_a_shell_can_name():
    assert set(environment({"k-v": 1}, "v3")) == {"SM_HP_K_V", "SM_HPS"}


def test_of_two_keys_with_one_legal_name_the_exact_spelling_wins():
    assert environment({"k_v": "exact", "k-v": "other"}, "v2")["SM_HP_K_V"] == "exact"


def test_reserved_keys_are_kept_from_the_script_and_shown_to_libraries():
    values = {
        "lr": 0.1,
        "sagemaker_program": "train.py",
        "sagemaker_mpi_enabled": True,
        "_tuning_objective_metric": "l",
    }
    for profile in ("v2", "v3"):
        assert arguments(values, profile) == ["--lr", "0.1"]
        assert set(environment(values, profile)) == {"SM_HP_LR", "SM_HPS"}
    assert framework_parameters(values) == {"sagemaker_mpi_enabled": True}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x=0.1", 0.1),
        ("x=1e-4", 0.0001),
        ("x=7", 7),
        ("x=true", True),
        ("x=null", None),
        ("x=[1, 2]", [1, 2]),
        ('x={"a": 1}', {"a": 1}),
        ('x="5"', "5"),
        ("x=it's", "it's"),
        ("x=True", "True"),
        ("x=bert base", "bert base"),
        ("x=a=b", "a=b"),
        ("x=", ""),
        ("x=007", "007"),
        ("x=NaN", "NaN"),
        ("x=[1,", "[1,"),
    ],
)
def test_a_value_on_the_command_line_is_json_where_it_can_be_and_text_otherwise(text, value):
    assert parse_hyperparameter(text) == ("x", value)
    assert type(parse_hyperparameter(text)[1]) is type(value)


@pytest.mark.parametrize("text", ["lr", "=0.1", " =1", "", "name=a\0b"])
def test_what_is_not_key_value_is_refused_in_four_parts(text):
    with pytest.raises(UsageError) as refused:
        parse_hyperparameter(text)
    error = refused.value
    assert error.code == "U07"
    assert error.exit_code == 2
    assert all((error.what, error.saw, error.next, error.more))


def test_a_file_keeps_types_and_order(tmp_path):
    file = tmp_path / "hp.json"
    file.write_text('{"zeta": "5", "alpha": [1], "flag": true}')
    assert list(read_hyperparameters(file).items()) == [("zeta", "5"), ("alpha", [1]), ("flag", True)]


@pytest.mark.parametrize("text", ["", "[1]", "{lr: 1}", '{"a=b": 1}', '{"": 1}'])
def test_a_file_that_is_no_object_of_usable_names_is_refused(tmp_path, text):
    file = tmp_path / "hp.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=str(file)) as refused:
        read_hyperparameters(file)
    assert refused.value.code == "U07"


def test_a_value_that_no_process_could_be_given_is_refused(tmp_path):
    file = tmp_path / "hp.json"
    file.write_text(json.dumps({"long": "x" * 140_000}))
    with pytest.raises(UsageError) as refused:
        read_hyperparameters(file)
    assert refused.value.saw == "140002 characters; Linux takes at most 131,071 bytes in one argument"


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError) as refused:
        read_hyperparameters(tmp_path / "none.json")
    assert refused.value.saw == "No such file or directory"


def test_what_a_container_was_given_is_decoded_or_kept():
    assert from_wire({"lr": "0.1", "name": "bert base", "flag": "true", "quoted": '"5"'}) == {
        "lr": 0.1,
        "name": "bert base",
        "flag": True,
        "quoted": "5",
    }


def test_a_legal_name_has_only_what_a_shell_allows():
    assert legal_name("train-data.v2") == "TRAIN_DATA_V2"


@pytest.mark.parametrize(
    ("text", "next"),
    [
        ("lr:0.1", "--hp lr=0.1 instead of --hp lr:0.1"),
        ("lr", "--hp lr=VALUE instead of --hp lr"),
        ("=3", "--hp key=VALUE instead of --hp =3"),
        ("path:", "--hp path:=VALUE instead of --hp path:"),
    ],
)
def test_a_pair_without_an_equals_sign_is_told_how_it_is_written(text, next):
    with pytest.raises(UsageError) as refused:
        parse_hyperparameter(text)
    assert refused.value.next == next
