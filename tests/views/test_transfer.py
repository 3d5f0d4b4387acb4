"""What is moved, as a person sees it."""

from paceline.views.live import doing, event_text
from paceline.views.transfer import transfer_doing, transfer_text

DONE = {
    "event": "transfer", "host": "algo-2", "what": "train", "direction": "download", "state": "done", "seconds": 38.2,
    "total_bytes": 4 << 30, "done_bytes": 4 << 30, "total_files": 1203, "done_files": 1203, "skipped_files": 0,
}  # fmt: skip


def test_what_was_fetched_is_one_line():
    assert event_text(DONE) == "paceline  algo-2 fetched channel train: 1203 files, 4.0 GiB (38 s)"
    assert transfer_text({**DONE, "skipped_files": 3}).endswith("4.0 GiB, 3 of them were here (38 s)")


def test_nothing_that_was_moved_is_no_line():
    assert transfer_text({**DONE, "total_files": 0}) is None
    assert transfer_text({**DONE, "state": "begun"}) is None
    assert transfer_text({**DONE, "direction": "upload", "files": 0}) is None


def test_an_archive_is_named_by_where_it_lies():
    url = "s3://bucket/out/r-1/output/model.tar.gz"
    sent = {**DONE, "direction": "upload", "what": "model", "url": url, "files": 2, "bytes": 10}
    assert transfer_text(sent) == f"paceline  algo-2 sent {url}: 2 files (38 s)"


def test_the_status_line_shows_how_far_it_is():
    moving = {**DONE, "state": "moving", "done_bytes": 1 << 30}
    assert transfer_doing(moving) == "fetching train on algo-2 [##........] 25% of 4.0 GiB"
    assert transfer_doing({**DONE, "state": "begun", "total_bytes": None}) == "fetching train on algo-2"
    assert transfer_doing(DONE) is None
    assert doing({"event": "status", "secondary_status": "Training"}) == "starting"
    assert doing({"event": "status", "secondary_status": "Uploading"}) is None
