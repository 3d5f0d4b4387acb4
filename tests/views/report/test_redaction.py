"""What is sent on has no secrets."""

import pytest

from paceline.views.report.redaction import HIDDEN, command_without_secrets, redacted, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("HF_TOKEN=abc x", f"HF_TOKEN={HIDDEN} x"),
        ("wandb: api_key: 'abc'", f"wandb: api_key: {HIDDEN}"),
        ("s3://user:pass@host/data", f"s3://{HIDDEN}@host/data"),
        ("https://h/x?X-Amz-Signature=ab12&n=1", f"https://h/x?X-Amz-Signature={HIDDEN}&n=1"),
        ('{"password": "abc"}', f'{{"password": {HIDDEN}}}'),
        ("https://h/x?access_token=ab12&n=1", f"https://h/x?access_token={HIDDEN}&n=1"),
        ("the token secret=abc", f"the token secret={HIDDEN}"),
        ("url=token=abc", f"url=token={HIDDEN}"),
        ("a=1&b=2?c=d&my-token=x&e=f", f"a=1&b=2?c=d&my-token={HIDDEN}&e=f"),
        ("see...https://me:pw@host and git+ssh://me@host", f"see...https://{HIDDEN}@host and git+ssh://{HIDDEN}@host"),
        ("x?a=b?key=abc&n=1", f"x?a=b?key={HIDDEN}&n=1"),
        ("tokens: 'a' secret = \"b\" c", f"tokens: {HIDDEN} secret = {HIDDEN} c"),
        (f"token={HIDDEN} key", f"token={HIDDEN} key"),
        ("a token limit of 512 tokens", "a token limit of 512 tokens"),
        ("loss=0.5 step=3", "loss=0.5 step=3"),
    ],
)
def test_values_behind_names_of_secrets_are_left_out(text, shown):
    assert without_secrets(text) == shown


def test_a_command_has_its_secrets_in_one_word_or_in_two():
    command = ["paceline", "run", "--env", "API_TOKEN=abc", "train.py", "--hf-token", "abc", "--epochs", "3"]
    shown = ["paceline", "run", "--env", f"API_TOKEN={HIDDEN}", "train.py", "--hf-token", HIDDEN, "--epochs", "3"]
    assert command_without_secrets(command) == shown


def test_all_texts_of_plain_data_are_redacted():
    facts = {"a": ["TOKEN=x", {"b": "PASSWORD=y"}], "n": 3, "none": None, "hf_token": "x", "tokens": 5}
    shown = {
        "a": [f"TOKEN={HIDDEN}", {"b": f"PASSWORD={HIDDEN}"}],
        "n": 3,
        "none": None,
        "hf_token": HIDDEN,
        "tokens": 5,
    }
    assert redacted(facts) == shown
