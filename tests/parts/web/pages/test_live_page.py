"""The live page in a real browser: it changes with the recording, and a reader loses nothing by that."""

import json
import shutil
import threading
from contextlib import contextmanager

import pytest
from html_tree import HOSTILE
from kept import kept, rewrite
from web_recordings import TOKEN, make_app

from paceline.listening import listening
from paceline.parts.web.serve.server import WebServer

WORDS = " ".join(HOSTILE)
pytestmark = [pytest.mark.browser, pytest.mark.process]


@contextmanager
def serving(app, port=0):
    """The address of the application."""
    listener = listening("127.0.0.1", port)
    server = WebServer(listener, app.answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "runs"


def keep(root, name):
    """A kept recording among the runs; its id and its directory."""
    (source,) = kept(name, root.parent / "kept")
    run_id = json.loads((source / "run.json").read_text())["run_id"]
    root.mkdir(exist_ok=True)
    return run_id, shutil.move(source, root / run_id)


def tell(directory, text):
    """One more event."""
    last = json.loads((directory / "events.jsonl").read_text().splitlines()[-1])["t_ns"]
    with (directory / "events.jsonl").open("a") as file:
        file.write(json.dumps({"t_ns": last + 1, "event": "notice", "text": text, "host": "localhost"}) + "\n")


def body(browser):
    return browser.run("return document.body.innerText")


@pytest.mark.parametrize("name", ["running", "hang", "torn", "later"])
def test_the_page_of_a_run_comes_without_a_word_on_the_console_and_keeps_no_token_in_its_address(browser, root, name):
    run_id, _ = keep(root, name)
    with serving(make_app(root)) as address:
        browser.open(f"{address}/run/{run_id}#k={TOKEN}")
        assert browser.messages() == []
        assert TOKEN not in browser.run("return location.href") and run_id in body(browser)
        assert browser.run("return document.querySelectorAll('#map canvas').length") > 0
        browser.driver.refresh()
        browser.wait("return 'ready' in document.documentElement.dataset")
        assert run_id in body(browser)


@pytest.mark.parametrize("path", ["/", "/run/RUN", "/compare?a=RUN&b=RUN"])
def test_everybody_can_use_the_pages_at_any_width(browser, root, path):
    run_id, _ = keep(root, "straggler")
    with serving(make_app(root, may_stop=True)) as address:
        for width, dark in ((360, False), (1280, True)):
            browser.open(f"{address}{path.replace('RUN', run_id)}#k={TOKEN}", width=width, dark=dark)
            assert browser.run("return document.documentElement.scrollWidth") <= width
            assert browser.violations() == []


def test_what_is_told_comes_onto_the_page_and_what_the_reader_did_stays(browser, root):
    run_id, directory = keep(root, "running")
    with serving(make_app(root)) as address:
        browser.open(f"{address}/run/{run_id}#k={TOKEN}")
        browser.run(
            "document.querySelector('#ranks th button').click(); document.querySelector('#ranks th button').click(); return 0"
        )
        order = "return [...document.querySelectorAll('#ranks tbody td:first-child')].map((one) => one.textContent)"
        sorted_so = browser.run(order)
        browser.run(
            "document.querySelectorAll('#logs details').forEach((one, at) => { one.open = at !== 0; }); return 0"
        )
        opened = browser.run("return [...document.querySelectorAll('#logs details')].map((one) => one.open)")
        browser.run(
            "document.querySelector('#logs').scrollIntoView(); document.querySelector('#logs input[type=search]').focus(); return 0"
        )
        place = browser.run("return Math.round(document.querySelector('#logs').getBoundingClientRect().top)")
        tell(directory, "something that nobody knew")
        browser.wait("return document.querySelector('#events').innerText.includes('something that nobody knew')")
        assert browser.run(order) == sorted_so
        assert browser.run("return [...document.querySelectorAll('#logs details')].map((one) => one.open)") == opened
        assert browser.run("return document.activeElement === document.querySelector('#logs input[type=search]')")
        assert abs(browser.run("return document.querySelector('#logs').getBoundingClientRect().top") - place) <= 2
        assert browser.messages() == []


def test_a_page_whose_server_is_silent_says_so_and_comes_back(browser, root):
    run_id, _ = keep(root, "running")
    app = make_app(root)
    with serving(app) as address:
        browser.open(f"{address}/run/{run_id}#k={TOKEN}")
        browser.wait("return document.querySelector('#live').innerText.includes('updated')")
    browser.wait("return document.querySelector('#live').innerText.includes('has not heard from its server')")
    assert browser.run("return getComputedStyle(document.querySelector('main')).filter") != "none"
    with serving(app, int(address.rpartition(":")[2])):
        browser.wait("return document.querySelector('#live').innerText.includes('updated')")
        assert browser.run("return getComputedStyle(document.querySelector('main')).filter") == "none"
    browser.messages()


def test_without_the_token_the_page_asks_for_it_and_shows_nothing(browser, root):
    run_id, _ = keep(root, "straggler")
    with serving(make_app(root)) as address:
        browser.open(f"{address}/run/{run_id}")
        assert browser.run("return document.querySelectorAll('section').length") == 0
        browser.run(
            "document.querySelector('#token').value = arguments[0]; document.querySelector('#live form').requestSubmit(); return 0",
            TOKEN,
        )
        browser.wait("return document.querySelector('#verdict') !== null")
        browser.messages()


def test_ranks_and_logs_are_shown_when_they_are_asked_for(browser, root):
    run_id, directory = keep(root, "straggler")
    log = next(directory.glob("hosts/*/attempt_0/rank_1.out"))
    log.write_text("a line of mine\nanother line\n")
    with serving(make_app(root)) as address:
        browser.open(f"{address}/run/{run_id}#k={TOKEN}")
        browser.run("document.querySelector(\"#ranks a[href='#rank=1']\").click(); return 0")
        browser.wait("return document.querySelector('#rank').innerText.includes('Its processes')")
        assert browser.run("return document.querySelector('#rank h3').textContent") == "Rank 1"
        browser.run(
            "document.querySelector('#log-find').value = 'of mine'; document.querySelector('#ask form').requestSubmit(); return 0"
        )
        browser.wait("return document.querySelector('#ask form pre').textContent.includes('a line of mine')")
        assert "another line" not in browser.run("return document.querySelector('#ask form pre').textContent")
        assert browser.violations() == [] and browser.messages() == []


def test_the_list_is_filtered_and_sorted(browser, root):
    ids = [keep(root, name)[0] for name in ("straggler", "hang", "healthy")]
    with serving(make_app(root)) as address:
        browser.open(f"{address}/#k={TOKEN}")
        rows = "return [...document.querySelectorAll('#runs tbody tr')].map((one) => one.cells[0].textContent)"
        assert sorted(browser.run(rows)) == sorted(ids)
        browser.run("document.querySelector('th button[data-sort=run]').click(); return 0")
        browser.wait("return document.querySelector('th[aria-sort=descending] button')?.dataset.sort === 'run'")
        assert browser.run(rows) == sorted(ids, reverse=True)
        browser.run(
            "const one = document.querySelector('#find'); one.value = arguments[0]; one.dispatchEvent(new Event('input')); return 0",
            ids[1],
        )
        browser.wait("return document.querySelectorAll('#runs tbody tr').length === 1")
        assert browser.run(rows) == [ids[1]] and browser.messages() == []


def test_hostile_words_do_nothing(browser, root):
    run_id, directory = keep(root, "running")
    rewrite(directory / "run.json", lambda document: {**document, "name": WORDS, "command": ["paceline", *HOSTILE]})
    for log in directory.glob("hosts/*/attempt_0/rank_*.out"):
        log.write_text(WORDS + "\n", errors="replace")
    tell(directory, WORDS)
    with serving(make_app(root)) as address:
        for path in ("/", f"/run/{run_id}"):
            browser.open(f"{address}{path}#k={TOKEN}")
            assert (
                browser.run("return document.querySelectorAll('img, iframe, form[action], object, embed').length") == 0
            )
            assert browser.run("return window.__pwned === undefined")
            assert browser.messages() == []
