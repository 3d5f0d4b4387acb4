"""Who gets what: the answers, and that no byte of a recording leaves without the token."""

import dataclasses
import json
import os
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from web_recordings import SECRET, TOKEN, get, make_app, record

from paceline.parts.web.serve.exchange import HttpRequest

DATA = (
    "/api/runs", "/api/run/r-000001/since", "/api/run/r-000001/page", "/api/run/r-000001/rank/0", "/api/run/r-000001/logs",
    "/api/run/r-000001/trace", "/api/compare?a=r-000001&b=r-000001", "/metrics?run=r-000001",
)  # fmt: skip
OPEN = ("/", "/compare", "/run/r-000001", "/run/anything", "/live.js", "/live.css", "/page.js", "/page.css")


@pytest.mark.parametrize("target", DATA)
def test_data_needs_the_token(app, target):
    assert get(app, target).status == 200
    for token in (None, "", "wrong", TOKEN[:-1], TOKEN + "x"):
        answer = get(app, target, token=token)
        assert answer.status == 401 and b"r-000001" not in answer.body
    assert get(app, target, token=None, authorization=f"Basic {TOKEN}").status == 401
    assert get(app, f"{target}{'&' if '?' in target else '?'}k={TOKEN}", token=None).status == 401


@pytest.mark.parametrize("target", OPEN)
def test_pages_and_scripts_hold_no_data(app, target):
    answer = get(app, target, token=None)
    assert answer.status == 200 and b"r-000001" not in answer.body and TOKEN.encode() not in answer.body


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost@evil", "127.0.0.1:8642:1", "", "169.254.0.1:8642", "[::2]"],
)
def test_another_name_gets_nothing(app, host):
    for target in (*DATA, *OPEN):
        assert get(app, target, host=host).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "LOCALHOST:99", "[::1]:8642", "hub.example:443"])
def test_own_names_are_answered_with_any_port(root, host):
    app = make_app(root, hosts=frozenset({"hub.example"}))
    assert get(app, "/api/runs", host=host).status == 200


def test_two_host_headers_are_none(app):
    headers = (("Host", "localhost"), ("host", "localhost"), ("Authorization", f"Bearer {TOKEN}"))
    assert app.answer(HttpRequest("GET", "/api/runs", headers)).status == 403


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example", "file://", "http://localhost/x"]
)
def test_a_page_of_another_site_gets_nothing(root, origin):
    app = make_app(root, may_stop=True)
    assert get(app, "/api/run/r-000001/stop", method="POST", origin=origin).status == 403
    assert get(app, "/api/runs", origin=origin).status == 403
    assert get(app, "/api/runs", origin="http://localhost:8642").status == 200


@pytest.mark.parametrize("method", ["DELETE", "PUT", "HEAD", "OPTIONS", "get", "BREW"])
def test_other_methods_are_not_known(app, method):
    assert get(app, "/api/runs", method=method).status == 501


@pytest.mark.parametrize("deed", ["stop", "look"])
def test_nothing_is_done_unless_it_is_allowed(root, app, deed):
    assert get(app, f"/api/run/r-000001/{deed}", method="POST").status == 403
    allowed = make_app(root, may_stop=True)
    assert get(allowed, f"/api/run/r-000001/{deed}", method="POST", token=None).status == 401
    assert get(allowed, f"/api/run/r-000001/{deed}").status == 405
    assert get(allowed, f"/api/run/r-000001/{deed}", method="POST", body=b"[1]").status == 409


def test_a_run_that_has_ended_is_not_stopped_again(root):
    answer = get(make_app(root, may_stop=True), "/api/run/r-000001/stop", method="POST")
    assert json.loads(answer.body) == {"text": "r-000001 has already ended: Completed"}


@pytest.mark.parametrize("target", ["/api/runs", "/", "/api/run/r-000001/logs"])
def test_nothing_is_posted_elsewhere(app, target):
    assert get(app, target, method="POST").status == 405


def test_a_token_for_metrics_gives_metrics_alone(root):
    app = make_app(root, metrics_token="only-for-metrics")
    assert get(app, "/metrics?run=r-000001", token="only-for-metrics").status == 200
    assert get(app, "/api/runs", token="only-for-metrics").status == 401


@pytest.mark.parametrize(
    "target",
    [
        "/api/run/../../etc/passwd/page",
        "/api/run/%2e%2e%2f%2e%2e/page",
        "/api/run//page",
        "/api/run/r-0000/page",
        "/api/compare?a=r-000001",
    ],
)
def test_no_path_comes_from_an_address(app, target):
    answer = get(app, target)
    assert answer.status == 404 and SECRET.encode() not in answer.body


def test_a_refusal_has_our_four_parts(app):
    refusal = json.loads(get(app, "/api/run/r-none/since").body)
    assert refusal["code"] == "U09" and refusal["what"] and refusal["saw"] and refusal["next"]


@pytest.mark.parametrize(
    "target",
    [
        "/metrics?ranks=some",
        "/metrics?ranks=worst:-1",
        "/api/run/r-000001/logs?rank=x",
        "/api/run/r-000001/trace?ranks=9-1",
    ],
)
def test_what_cannot_be_meant_is_refused(app, target):
    assert get(app, target).status == 409


def test_the_page_is_sent_once_and_then_what_changed(app, root):
    first = json.loads(get(app, "/api/run/r-000001/since").body)
    assert list(first["html"]) == first["order"] and first["ended"] is True and SECRET in first["html"]["events"]
    again = get(app, f"/api/run/r-000001/since?after={first['cursor']}")
    assert json.loads(again.body) == {"cursor": first["cursor"]} and len(again.body) < 40
    everything = json.loads(get(app, "/api/run/r-000001/since?after=another.7").body)
    assert everything["order"] == first["order"] and set(everything["html"]) == set(first["html"])


def test_the_page_is_that_of_the_report(app, root):
    from paceline.cli.report import recorded
    from paceline.views.report.facts import page_facts

    live = json.loads(get(app, "/api/run/r-000001/page").body)
    report = page_facts(recorded([root / "r-000001"], with_logs=True))
    for name in ("verdict", "summary", "lateness", "told", "logs", "stacks_text"):
        assert live[name] == json.loads(json.dumps(report[name])), name


def test_logs_are_found_by_words_rank_and_stream(app):
    def texts(query):
        return [line["text"] for line in json.loads(get(app, f"/api/run/r-000001/logs?{query}").body)["lines"]]

    assert texts("") == [SECRET, "step 1 of 2", "Step 2 of 2"]
    assert texts("find=STEP+2") == ["step 1 of 2", "Step 2 of 2"] and texts("find=step+of+1") == ["step 1 of 2"]
    assert texts("rank=0&limit=1") == ["Step 2 of 2"] and texts("rank=1") == [] and texts("stream=err") == []


def test_what_is_left_out_of_the_logs_is_said(app):
    answer = json.loads(get(app, "/api/run/r-000001/logs?limit=1").body)
    assert answer["left_out"] == ["2 earlier lines"]


def test_the_newest_run_comes_first_and_words_choose(root, app):
    record(root, "r-000002", "other", started_ns=2_000_000_000_000)
    html = json.loads(get(app, "/api/runs").body)["html"]["runs"]
    assert html.index("r-000002") < html.index("r-000001")
    assert "r-000001" not in json.loads(get(app, "/api/runs?find=other.py").body)["html"]["runs"]
    upwards = json.loads(get(app, "/api/runs?sort=run&up=1").body)["html"]["runs"]
    assert upwards.index("r-000001") < upwards.index("r-000002")
    failed = json.loads(get(app, "/api/runs?status=failed").body)["html"]["runs"]
    assert "No such run" in failed and str(root) in failed


def test_runs_of_other_directories_say_where_they_are(root, app, tmp_path):
    assert "where" not in json.loads(get(app, "/api/runs").body)["html"]["runs"]
    other = record(tmp_path / "other/.paceline/runs", "r-000002")
    (root / "r-000002").symlink_to(other)
    html = json.loads(get(make_app(root), "/api/runs").body)["html"]["runs"]
    assert '<th scope="col">where</th>' in html and html.count(">here<") == 1
    assert f'<td class="wide dim">{other.parents[2]}</td>' in html


def test_a_list_that_has_not_changed_costs_few_bytes(app):
    cursor = json.loads(get(app, "/api/runs").body)["cursor"]
    assert len(get(app, f"/api/runs?after={cursor}").body) < 40


def test_metrics_are_those_of_the_verb(app, root, capsys):
    from paceline.cli import main

    assert main(["report", "--format", "prometheus", str(root / "r-000001"), "--worst", "0"]) == 0
    names = [line.split()[2] for line in capsys.readouterr().out.splitlines() if line.startswith("# TYPE")]
    text = get(app, "/metrics?run=r-000001").body.decode()
    assert [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")] == names


def test_a_large_answer_is_packed_for_who_takes_it(app):
    plain, packed = get(app, "/page.js"), get(app, "/page.js", accept_encoding="gzip, br")
    assert len(packed.body) < len(plain.body) / 2 and ("Content-Encoding", "gzip") in packed.headers


def test_hostile_words_are_no_elements(root, app):
    name = "<img src=x onerror=alert(1)>\x1b[31m\u202e"
    record(root, "r-00000a", name, started_ns=3_000_000_000_000)
    for target in ("/api/runs", "/api/run/r-00000a/since"):
        for html in json.loads(get(app, target).body)["html"].values():
            assert "<img" not in html and "\x1b" not in html and "\u202e" not in html


TEXTS = st.text(alphabet=string.ascii_letters + string.digits + "/.%?&=#:@[] -\\\0\r\n\u202e", max_size=30)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "Host",
                "host",
                "HOST",
                "Origin",
                "Authorization",
                "authorization",
                "Content-Length",
                "X-Forwarded-Host",
                "Cookie",
            ]
        ),
        st.one_of(
            TEXTS,
            st.sampled_from(
                ["localhost", "127.0.0.1:8642", "evil.example", "Bearer", "Bearer ", "Bearer wrong", "http://localhost"]
            ),
        ),
    ),
    max_size=5,
)
TARGETS = st.one_of(TEXTS, st.sampled_from([*DATA, *OPEN]), st.tuples(st.sampled_from(DATA), TEXTS).map("".join))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.one_of(st.sampled_from(["GET", "POST"]), TEXTS),
    target=TARGETS,
    headers=HEADERS,
    body=st.binary(max_size=40),
)
def test_no_request_without_the_token_gets_a_byte_of_a_recording(app, method, target, headers, body):
    answer = app.answer(HttpRequest(method, target, tuple(headers), body))
    assert answer.status in (200, 400, 401, 403, 404, 405, 501)
    assert b"000001" not in answer.body and SECRET.encode() not in answer.body and TOKEN.encode() not in answer.body
    hosts = [value.strip().lower() for name, value in headers if name.lower() == "host"]
    if len(hosts) != 1 or not hosts[0].startswith(("localhost", "127.0.0.1", "[::1]")):
        assert answer.status == 403


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(target=TARGETS, body=st.binary(max_size=40))
def test_whoever_has_the_token_gets_an_answer_or_a_refusal(app, target, body):
    for method in ("GET", "POST"):
        assert get(app, target, method=method, body=body).status < 500


def test_a_recording_of_a_later_version_is_shown_as_far_as_it_is_known(app, root):
    path = record(root, "r-00000b", started_ns=3_000_000_000_000)
    document = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**document, "schema": "paceline.run/9", "colour": {"deep": [1]}}))
    with (path / "events.jsonl").open("a") as file:
        file.write(
            '{"t_ns": 3000000000009, "event": "something_of_later", "depth": {"a": [1]}}\n{"t_ns": "never"}\n[]\n'
        )
    page = json.loads(get(app, "/api/run/r-00000b/since").body)
    assert "r-00000b" in page["html"]["head"] and SECRET in page["html"]["events"]


@pytest.mark.parametrize("name", ["run.json", "events.jsonl", "hosts/a/attempt_0/rank_0.out"])
def test_a_recording_that_lacks_a_file_has_a_page(app, root, name):
    path = record(root, "r-00000c", started_ns=3_000_000_000_000)
    (path / name).unlink()
    assert get(app, "/api/runs").status == 200
    assert get(app, "/api/run/r-00000c/since").status in (200, 404)
    assert get(app, "/api/run/r-00000c/logs").status == 200


def test_a_run_that_is_removed_while_it_is_shown_is_refused(app, root, tmp_path):
    path = record(root, "r-00000d", started_ns=3_000_000_000_000)
    assert get(app, "/api/run/r-00000d/since").status == 200
    path.rename(tmp_path / "gone")
    assert get(app, "/api/run/r-00000d/since").status in (200, 404)
    assert get(app, "/api/run/r-00000d/rank/0").status in (200, 404)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_run_is_shown_and_not_stopped(root):
    path = record(root, "r-00000e", ended=False, started_ns=3_000_000_000_000)
    os.chown(path, 12345, 12345)
    app = make_app(root, may_stop=True)
    assert get(app, "/api/run/r-00000e/since").status == 200
    refusal = get(app, "/api/run/r-00000e/stop", method="POST")
    assert refusal.status == 409 and json.loads(refusal.body)["code"] in ("U25", "U19")


def test_metrics_of_several_runs_are_one_text(app, root):
    for run_id in ("r-00000f", "r-000010"):
        record(root, run_id, ended=False, started_ns=3_000_000_000_000)
    lines = get(app, "/metrics").body.decode().splitlines()
    kinds = [line for line in lines if line.startswith("# TYPE")]
    assert len(kinds) == len(set(kinds)) and kinds
    for run_id in ("r-00000f", "r-000010"):
        assert f'paceline_run_info{{run="{run_id}",name="train",paceline_version="0.1.0"}} 1.0' in lines
    assert not any("r-000001" in line for line in lines), "a run that has ended is scraped when it is named"


def test_a_submitted_run_is_shown_as_its_last_try_and_its_engine_is_asked(root):
    asked = []
    app = make_app(root)
    app.readers = dataclasses.replace(app.readers, ask_engine=lambda path: asked.append(path.name) or "it is silent")
    first = record(root, "r-000011", started_ns=3_000_000_000_000)
    (first / "submission.json").write_text('{"schema": "paceline.submission/2", "engine": "slurm", "name": "train"}')
    record(root, "r-000011.2", "second", started_ns=3_000_000_000_001)
    page = json.loads(get(app, "/api/run/r-000011/since").body)
    assert "r-000011.2" in page["html"]["head"] and page["note"] == "it is silent" and asked == ["r-000011"]
    assert "it is silent" in json.loads(get(app, "/api/runs").body)["html"]["runs"]
