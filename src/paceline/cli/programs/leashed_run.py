"""`paceline run` on a leash: `python -m paceline.cli.programs.leashed_run DESCRIPTOR WORDS...`. Not typed by hand."""

import os
import signal
import sys
import threading

from paceline.cli import guarded


def main(argv: list[str]) -> int:
    """Run the job; once nobody holds the other end of the descriptor, end it as on SIGTERM."""
    leash, rest = int(argv[0]), argv[1:]
    threading.Thread(target=_hold, args=(leash,), daemon=True).start()
    return guarded(lambda: _run(rest), rest)


def _run(argv: list[str]) -> int:
    from paceline.cli.run import verb

    return verb.run(verb.parse(argv))


def _hold(leash: int) -> None:
    os.read(leash, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
