"""Print the page behind a code; without a code, list them all."""

import argparse
import json
import sys

from paceline.cli.option import Option, Verb
from paceline.cli.terminal import ascii_only, room, use_color
from paceline.errors import UsageError
from paceline.rules import page_of, pages
from paceline.spelling import nearest
from paceline.views.page import code_list, page_sections, page_text

VERB = Verb(
    "explain",
    __doc__ or "",
    (
        ("paceline explain U04", "what to do about a port in use"),
        ("paceline explain", "every code with its title"),
    ),
    (Option("code", "A code, as printed in error[CODE].", "CODE", count="?", is_positional=True),),
)


def run(args: argparse.Namespace) -> int:
    if args.code is None:
        known = pages()
        if args.json:
            codes = {code: page_sections(known[code])["title"] for code in sorted(known)}
            print(json.dumps({"schema": "paceline.explain/1", "codes": codes}))
        else:
            print(code_list(known, width=room(sys.stdout), ascii_only=ascii_only(sys.stdout)))
        return 0
    code = args.code.strip().upper()
    page = page_of(code)
    if page is None:
        near = nearest(code, pages())
        raise UsageError(
            "U01",
            f"no page for the code {args.code!r}",
            saw=f"the nearest one is {near}" if near else "codes are a letter and two digits",
            next=f"paceline explain {near}" if near else "paceline explain",
        )
    if args.json:
        print(json.dumps({"schema": "paceline.explain/1", "code": code, **page_sections(page)}))
    else:
        print(page_text(code, page, color=use_color(args.color, sys.stdout)))
    return 0
