"""`python -m paceline` is the `paceline` command."""

from paceline.cli import main

raise SystemExit(main())
