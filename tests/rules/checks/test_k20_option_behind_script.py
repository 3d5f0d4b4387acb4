"""K20: an option of the launcher behind the script."""

import pytest

from paceline.rules.job_facts import SourceFile


@pytest.mark.parametrize(
    "arguments", [("--nnodes", "2"), ("--lr", "1", "--nproc_per_node=2"), ("--max-run", "1h"), ("--sarif", "a.sarif")]
)
def test_an_option_that_the_script_does_not_know_is_the_launchers(found, job, arguments):
    (finding,) = found("K20", job("print(1)", arguments=arguments))
    assert "does not know it" in finding.what and finding.next.endswith("before train.py")


def test_a_script_that_knows_the_option_keeps_it(found, job):
    text = "parser.add_argument('--nnodes', type=int)\nparser.add_argument('--node_rank')"
    assert not found("K20", job(text, arguments=("--nnodes", "2", "--node-rank", "1")))
    imported = (SourceFile("options.py", "add('--nnodes')"),)
    assert not found("K20", job("import options", arguments=("--nnodes", "2"), imported=imported))


def test_the_scripts_own_options_are_its_own(found, job):
    assert not found("K20", job("print(1)", arguments=("--lr", "0.1", "--epochs", "3")))
    assert not found("K20", job(arguments=("--nnodes", "2")))


def test_the_module_json_is_no_option_of_the_script(found, job):
    (finding,) = found("K20", job("import json\nprint(json.dumps({'json': 1}))", arguments=("--json",)))
    assert finding.next == "put --json before train.py"


@pytest.mark.parametrize(
    "text", ["add('--json')", "class Options:\n    json: bool = False", "def main(json=False): pass"]
)
def test_a_script_may_have_an_option_json(found, job, text):
    assert not found("K20", job(text, arguments=("--json",)))
