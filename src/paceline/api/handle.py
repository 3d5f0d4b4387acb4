"""One run in Python: wait for it, read what it wrote, ask why, end it."""

import html
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.api.answers import Answer, Logs, Why
from paceline.api.wait_output import WaitOutput
from paceline.cli.logs import POLL_SECONDS
from paceline.cli.ps import listed
from paceline.cli.why import judge_run
from paceline.diagnosis.run_state import run_state
from paceline.facts import Evidence, Status
from paceline.recording.evidence import evidence, read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.logs import LogChoice, chosen_lines
from paceline.recording.runs import newest_try
from paceline.views.documents import as_read
from paceline.views.logs import log_line, log_line_json
from paceline.views.ps import ListedRun, ps_facts, ps_rows, ps_text
from paceline.views.status import run_lasts
from paceline.views.why import WhyPage, why_json, why_text


class RunHandle:
    """A run that this process started, or that was found by its id. In a notebook it is shown as its line of `paceline ps`.

    A run that this process started ends with this process. `paceline.runs()` and the verbs find it as any other.
    """

    def __init__(
        self,
        directory: Path,
        *,
        process: "subprocess.Popen[bytes] | None" = None,
        lifeline: int = -1,
        launcher_output: int = -1,
    ) -> None:
        self._first = directory
        self._process = process
        self._lifeline = lifeline
        self._launcher_output = launcher_output
        self._launcher_bytes = 0

    @property
    def id(self) -> str:
        """The id of the run, such as r-7f3a91."""
        return self._first.name

    @property
    def directory(self) -> Path:
        """Its recording. Of a submitted job, that of the newest try."""
        return newest_try(self._first)

    @property
    def status(self) -> Status:
        """The status in SageMaker's words: InProgress, Completed, Failed, Stopping or Stopped."""
        return read_run((RunDirectory(self.directory),))[0].status

    @property
    def exit_code(self) -> int | None:
        """The exit code of the run; None: it has not ended, or the code is not known."""
        if self._process is not None:
            return self._process.poll()
        return read_run((RunDirectory(self.directory),))[0].exit_code

    def wait(self, timeout_seconds: float | None = None, *, show: bool = True) -> int:
        """Wait for the end and return the exit code.

        `show`: print what the ranks and paceline write, with a line about the progress. Ctrl-C, or the interrupt of a notebook, ends the
        job in good order: every rank gets SIGTERM, and a second one ends it at once.

        Raises:  TimeoutError: the run still lasts after `timeout_seconds`; it goes on
                 KeyboardInterrupt: after the job has ended
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        output = WaitOutput(self._recording, self._new_text) if show else None
        try:
            while self._lasts():
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"{self.id} still runs after {timeout_seconds:g} s")
                if output is not None:
                    output.go_on()
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            self.end_in_order(output)
            raise
        if output is not None:
            output.finish()
        self._let_go()
        code = self.exit_code
        return 0 if code is None else code

    def stop(self, *, now: bool = False) -> bool:
        """End the run: every rank gets SIGTERM, and SIGKILL after the grace of the run, or at once with `now`. It does not wait.

        Returns whether the run was told; False: it had ended already.

        Raises:  UsageError U19, U25: it cannot be reached from here, or is another user's; HostLost U19: its agent is gone
        """
        from paceline.cli.stop import stopped

        return stopped(self.directory, now=now).accepted

    def logs(
        self, rank: int | None = None, *, host: str | None = None, attempt: int | None = None, tail: int | None = None
    ) -> Logs:
        """The lines that the ranks have written, rank after rank. `tail`: only the last lines of each stream of each rank.

        Raises:  UsageError U09: the recording is gone
        """
        choice = LogChoice(ranks=None if rank is None else frozenset({rank}), host=host, attempt=attempt)
        lines = list(chosen_lines((RunDirectory(self.directory),), choice, tail))
        several = len({name.host for name, _, _ in lines}) > 1
        return Logs(
            lines=tuple(text.decode(errors="replace") for _, _, text in lines),
            records=tuple(
                json.loads(log_line_json(self.id, name.host, name.attempt, name.rank, name.stream, text, time_ns))
                for name, time_ns, text in lines
            ),
            text=b"".join(log_line(name.host if several else None, name.rank, text) for name, _, text in lines).decode(
                errors="replace"
            ),
        )

    def why(self) -> Why:
        """Why the run hangs, failed, computes wrong numbers or is slow.

        Raises:  NotEnoughEvidence U20: the recording has neither an event nor a rank
        """
        case, diagnosis, _ = judge_run([self.directory], now_ns=time.time_ns())
        return Why(
            run_id=self.id,
            state=run_state(case.run, case.events).word,
            findings=tuple(diagnosis.findings),
            not_judged=tuple(diagnosis.not_judged),
            text=why_text(diagnosis, case, WhyPage(width=None)),
            document=as_read(why_json(diagnosis, case)),
        )

    def evidence(self) -> Evidence:
        """The whole recording as it is now."""
        return evidence(self.directory)

    def results(self) -> dict[int, Any]:
        """Rank -> the value that the function returned, of a run of `run_function` that has ended.

        Raises:  NotEnoughEvidence U20: no rank has returned, or the run is not one of a function
        """
        from paceline.api.function import results_of

        return results_of(self._first)

    def __repr__(self) -> str:
        return f"<run {self.id} {self.status} {self.directory}>"

    def _repr_html_(self) -> str:
        return Runs((self,))._repr_html_()

    def _lasts(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return run_lasts(read_run((RunDirectory(self.directory),))[0])

    def end_in_order(self, output: WaitOutput | None = None) -> None:
        """After a Ctrl-C: the job's own way to end, and SIGKILL for the second one."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        while self._process.poll() is None:
            try:
                if output is not None:
                    output.go_on()
                time.sleep(POLL_SECONDS)
            except KeyboardInterrupt:
                self._process.send_signal(signal.SIGINT)
        if output is not None:
            output.finish()
        self._let_go()

    def _let_go(self) -> None:
        """Close what connects the job to this process. A job that still runs is ended in good order."""
        for descriptor in (self._lifeline, self._launcher_output):
            if descriptor >= 0:
                os.close(descriptor)
        self._lifeline = self._launcher_output = -1

    def _recording(self) -> RunDirectory:
        return RunDirectory(self.directory)

    def _new_text(self) -> str:
        """What the launcher has said since the last call."""
        if self._launcher_output < 0:
            return ""
        text = os.pread(
            self._launcher_output, os.fstat(self._launcher_output).st_size - self._launcher_bytes, self._launcher_bytes
        )
        self._launcher_bytes += len(text)
        return text.decode(errors="replace")


@dataclass(frozen=True, slots=True, eq=False)
class Runs(Answer, Sequence[RunHandle]):
    """Runs, the newest first. `print` shows them as `paceline ps` does; a notebook shows a table. Both read the recordings."""

    handles: tuple[RunHandle, ...]
    """The runs."""

    def __str__(self) -> str:
        return ps_text(self._listed(), time.time_ns())

    def __len__(self) -> int:
        return len(self.handles)

    def __getitem__(self, place: Any) -> Any:
        return self.handles[place]

    def __iter__(self) -> Iterator[RunHandle]:
        return iter(self.handles)

    def facts(self) -> dict[str, Any]:
        """The object of `paceline ps --json`."""
        return as_read(ps_facts(self._listed()))

    def _repr_html_(self) -> str:
        headers, rows = ps_rows(self._listed(), time.time_ns())
        head = "".join(f"<th>{html.escape(name)}</th>" for name in headers)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _listed(self) -> list[ListedRun]:
        return [listed(handle.directory) for handle in self.handles]
