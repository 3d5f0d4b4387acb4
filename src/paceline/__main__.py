"""`python -m paceline` is the `paceline` command."""

import sys


def main() -> int:
    """Run one command line. Ctrl-C during the imports ends it without a traceback, as at any other time."""
    try:
        from paceline.cli import main as command

        return command()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
