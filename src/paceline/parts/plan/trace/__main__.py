"""Traces a script: `python -m paceline.parts.plan.trace --out FILE [--device cuda|cpu] [--devices N] [--world-size N] [--model NAME]
[-m] [SCRIPT [ARGUMENT ...]]`."""

import argparse
import os
import sys
from pathlib import Path

from paceline.parts.plan.trace.session import TraceSession


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m paceline.parts.plan.trace")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--model", default="")
    parser.add_argument("-m", dest="module", action="store_true")
    parser.add_argument("target", nargs="?", default="")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main() -> None:
    """Install every patch, then run the script, or the factory, to its first step."""
    args = _arguments()
    # `python -m` puts the working directory first, which the script would not have.
    if sys.path and sys.path[0] in ("", os.getcwd()):
        sys.path.pop(0)
    session = TraceSession(
        args.out.resolve(), device_type=args.device, world_size=args.world_size, device_count=args.devices
    )
    from paceline.parts.plan.trace.script import environment, failed, run

    environment(args.world_size)
    try:
        import torch  # noqa: F401 - the first of all seams is whether it is here
    except ImportError as error:
        session.fail("P05", "there is no torch in this Python", saw=str(error), lacks="torch")
    from paceline.parts.plan.trace import factory, install

    with install.installed(session):
        if args.model:
            try:
                factory.run(session, args.model)
            except BaseException as error:
                failed(session, error)
        run(session, args.target, args.arguments, is_module=args.module)


if __name__ == "__main__":
    main()
