"""Lines of a job as CloudWatch Logs shows them."""

import pytest

from paceline.parts.sagemaker.local.errors import ApiError
from paceline.parts.sagemaker.local.log_streams import (
    LONGEST_EVENT_BYTES,
    LogStream,
    StreamLine,
    fitting,
    matcher,
    matches,
    page,
    pieces,
)
from paceline.parts.sagemaker.local.logs_api import LogsApi
from paceline.parts.sagemaker.local.metrics import Scraper

GROUP = "/aws/sagemaker/TrainingJobs"


@pytest.fixture
def stream(tmp_path):
    path = tmp_path / "algo-1.jsonl"
    path.touch()
    return LogStream(name="job/algo-1", path=path)


@pytest.fixture
def reading(tmp_path):
    class Streams:
        def streams(self):
            return self.found

    shelf = Streams()
    shelf.found = []
    for host in ("algo-1", "algo-2"):
        path = tmp_path / f"{host}.jsonl"
        path.touch()
        shelf.found.append(LogStream(name=f"job/{host}", path=path))
    for time_ms in range(10):
        shelf.found[time_ms % 2].append(time_ms, f"line {time_ms}")
    return LogsApi(shelf, region="us-east-1")


def test_lines_come_back_as_they_went_in(stream):
    for text in ("one", "", "ümlaut \u2028 and\ttab"):
        stream.append(5, text)
    assert [line.text for line in stream.read(stream.between(None, None))] == ["one", "", "ümlaut \u2028 and\ttab"]


def test_time_never_goes_back_within_a_stream(stream):
    for time_ms in (5, 3, 9):
        stream.append(time_ms, "x")
    assert [line.time_ms for line in stream.read(stream.between(None, None))] == [5, 5, 9]


def test_a_span_of_time_has_its_beginning_and_not_its_end(stream):
    for time_ms in (1, 2, 3, 4):
        stream.append(time_ms, str(time_ms))
    assert [line.text for line in stream.read(stream.between(2, 4))] == ["2", "3"]


def test_a_later_server_finds_the_lines_and_cuts_off_half_of_one(stream):
    stream.append(1, "whole")
    with stream.path.open("ab") as file:
        file.write(b'[2, "ha')
    again = LogStream(name=stream.name, path=stream.path)
    again.load()
    again.append(3, "next")
    assert [line.text for line in again.read(again.between(None, None))] == ["whole", "next"]


def test_a_line_that_is_too_long_is_several_events():
    text = "x" * LONGEST_EVENT_BYTES
    assert len(pieces(text)) > 1
    assert "".join(pieces(text)) == text


def test_forward_pages_have_every_line_once():
    seen, token = [], None
    while True:
        shown = page(range(7), limit=3, token=token, from_head=True)
        if not shown:
            break
        seen += list(shown)
        token = f"f/{shown.stop}"
    assert seen == list(range(7))


def test_without_a_direction_the_newest_page_comes_first():
    assert page(range(7), limit=3, token=None, from_head=False) == range(4, 7)
    assert page(range(7), limit=3, token="b/4", from_head=False) == range(1, 4)
    with pytest.raises(ValueError):
        page(range(7), limit=3, token="x/4", from_head=False)


def test_an_answer_holds_at_most_a_mebibyte_but_never_nothing():
    big = [StreamLine(n, "x" * 600_000) for n in range(3)]
    assert [line.time_ms for line in fitting(big)] == [0]
    assert [line.time_ms for line in fitting(big, newest=True)] == [2]


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("", "anything", True),
        ("ERROR loss", "loss 3 ERROR", True),
        ("ERROR loss", "ERROR", False),
        ('"two words"', "two words", True),
        ('"two words"', "words two", False),
        ("?a ?b", "b", True),
        ("?a ?b", "c", False),
        ("loss -nan", "loss nan", False),
    ],
)
def test_filter_patterns_are_terms(pattern, text, fits):
    assert matches(text, matcher(pattern)) is fits


def test_a_pattern_for_json_is_not_guessed_at():
    with pytest.raises(ValueError):
        matcher("{ $.loss > 1 }")


def test_tokens_stay_the_same_at_both_ends(reading):
    answer = reading.events({"logGroupName": GROUP, "logStreamName": "job/algo-1", "startFromHead": True})
    assert [event["message"] for event in answer["events"]] == [f"line {n}" for n in (0, 2, 4, 6, 8)]
    again = {"logGroupName": GROUP, "logStreamName": "job/algo-1", "nextToken": answer["nextForwardToken"]}
    assert reading.events(again) == {**answer, "events": [], "nextBackwardToken": "b/5"}


def test_filtered_events_of_all_streams_are_in_order_and_come_in_pages(reading):
    request = {"logGroupName": GROUP, "logStreamNamePrefix": "job/", "limit": 4}
    seen, token = [], None
    while True:
        answer = reading.filtered({**request, **({"nextToken": token} if token else {})})
        seen += [event["message"] for event in answer["events"]]
        token = answer["nextToken"]
        if token is None:
            break
    assert seen == [f"line {n}" for n in range(10)]


def test_streams_come_in_pages_by_name(reading):
    first = reading.streams({"logGroupName": GROUP, "limit": 1})
    second = reading.streams({"logGroupName": GROUP, "limit": 1, "nextToken": first["nextToken"]})
    assert [one["logStreamName"] for answer in (first, second) for one in answer["logStreams"]] == [
        "job/algo-1",
        "job/algo-2",
    ]
    assert second["nextToken"] is None


@pytest.mark.parametrize(
    ("ask", "request_", "code"),
    [
        ("streams", {"logGroupName": "/other"}, "ResourceNotFoundException"),
        ("events", {"logGroupName": GROUP, "logStreamName": "job/algo-9"}, "ResourceNotFoundException"),
        (
            "events",
            {"logGroupName": GROUP, "logStreamName": "job/algo-1", "nextToken": "?"},
            "InvalidParameterException",
        ),
        ("filtered", {"logGroupName": GROUP, "filterPattern": "{ $.a = 1 }"}, "InvalidParameterException"),
        ("filtered", {"logGroupName": GROUP, "nextToken": "no"}, "InvalidParameterException"),
    ],
)
def test_what_is_not_there_or_not_understood_has_cloudwatchs_codes(reading, ask, request_, code):
    with pytest.raises(ApiError) as refused:
        getattr(reading, ask)(request_)
    assert refused.value.code == code


def test_the_last_number_of_each_metric_is_kept():
    scraper = Scraper([{"Name": "loss", "Regex": "loss ([0-9.]+)"}, {"Name": "never", "Regex": "x=(.*)"}])
    for time_seconds, line in enumerate(("loss 2.5", "x=nothing", "loss 1.5 now", "done")):
        scraper.see(line, float(time_seconds))
    assert scraper.final() == [{"MetricName": "loss", "Value": 1.5, "Timestamp": 2.0}]
