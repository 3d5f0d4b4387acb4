"""K07: SM_HOSTS as it is, used as what it is not."""

import pytest

from paceline.findings import Severity

RIGHT = 'len(json.loads(os.environ["SM_HOSTS"]))'


@pytest.mark.parametrize(
    "text",
    [
        'import os\nn = int(os.environ["SM_HOSTS"])\n',
        'import os\nn = int(os.environ.get("SM_HOSTS", 1))\n',
        'import os\nn = int(os.getenv("SM_HOSTS"))\n',
        'from os import environ\nn = int(environ["SM_HOSTS"])\n',
        'import os as system\nn = int(system.environ["SM_HOSTS"])\n',
        'import os\nif __name__ == "__main__":\n    n = int(os.environ["SM_HOSTS"])\n',
        'import os\nparser.add_argument("--n", type=int, default=os.environ["SM_HOSTS"])\n',
    ],
)
def test_a_list_taken_for_a_number_stops_the_job_with_the_right_expression(found, job, text):
    (finding,) = found("K07", job(text))
    line = text.splitlines().index(next(line for line in text.splitlines() if "SM_HOSTS" in line)) + 1
    assert finding.severity is Severity.ERROR
    assert finding.what.startswith(f"train.py:{line}: SM_HOSTS is a JSON list")
    assert finding.next == RIGHT
    assert "SM_HOSTS" in finding.saw


def test_a_name_bound_once_is_followed(found, job):
    (finding,) = found("K07", job('import os\nSM_HOSTS = os.environ["SM_HOSTS"]\nnodes = int(SM_HOSTS)\n'))
    assert finding.what.startswith("train.py:3")


def test_under_a_condition_it_is_a_warning(found, job):
    text = 'import os\nif "SM_HOSTS" in os.environ:\n    n = int(os.environ["SM_HOSTS"])\n'
    assert found("K07", job(text))[0].severity is Severity.WARNING
    text = 'import os\ntry:\n    n = int(os.environ["SM_HOSTS"])\nexcept Exception:\n    print("oh")\n'
    assert found("K07", job(text))[0].severity is Severity.WARNING


def test_the_current_host_is_a_name(found, job):
    (finding,) = found("K07", job('import os\nrank = int(os.environ["SM_CURRENT_HOST"])\n'))
    assert finding.next == 'json.loads(os.environ["SM_HOSTS"]).index(os.environ["SM_CURRENT_HOST"])'


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ('n = len(os.environ.get("SM_HOSTS", []))', RIGHT),
        ('multi = len(os.environ["SM_HOSTS"]) > 1', RIGHT),
        ('first = os.environ["SM_HOSTS"][0]', 'json.loads(os.environ["SM_HOSTS"])[0]'),
        (
            'hosts = os.environ["SM_HOSTS"]\nrank = hosts.index("algo-1")',
            'json.loads(os.environ["SM_HOSTS"]).index(...)',
        ),
        ('for host in os.environ["SM_HOSTS"]: print(host)', 'for ... in json.loads(os.environ["SM_HOSTS"])'),
        ('hosts = list(os.environ["SM_CHANNELS"])', 'list(json.loads(os.environ["SM_CHANNELS"]))'),
        (
            'parser.add_argument("--hosts", type=list, default=os.environ["SM_HOSTS"])',
            "type=json.loads, default=os.environ['SM_HOSTS']",
        ),
    ],
)
def test_characters_taken_for_entries_are_a_warning(found, job, line, right):
    (finding,) = found("K07", job(f"import os\n{line}\n"))
    assert finding.severity is Severity.WARNING
    assert finding.next == right


@pytest.mark.parametrize(
    "line",
    [
        'n = len(json.loads(os.environ["SM_HOSTS"]))',
        'n = int(os.environ["SM_HOST_COUNT"])',
        'n = int(os.environ["SM_NUM_GPUS"])',
        'if len(os.environ["SM_HOSTS"]) == 0: raise SystemExit',
        'if not len(os.environ["SM_HOSTS"]): raise SystemExit',
        'hosts = os.environ["SM_HOSTS"].strip("[]").split(",")',
        'hosts = os.environ["SM_HOSTS"]\nhosts = json.loads(hosts)\nn = len(hosts)',
        'parser.add_argument("--hosts", type=json.loads, default=os.environ["SM_HOSTS"])',
        'parser.add_argument("--hosts", type=list, default=json.loads(os.environ["SM_HOSTS"]))',
        'parser.add_argument("--hosts", type=str, default=os.environ["SM_HOSTS"])',
        'try:\n    n = int(os.environ["SM_HOSTS"])\nexcept ValueError:\n    n = 1',
        'def f(hosts):\n    return len(hosts)\nf(json.loads(os.environ["SM_HOSTS"]))',
        'print(os.environ["SM_HOSTS"])',
        'int = len\nn = int(os.environ["SM_HOSTS"].split(","))',
    ],
)
def test_right_uses_draw_nothing(found, job, line):
    assert not found("K07", job(f"import json, os\n{line}\n"))
