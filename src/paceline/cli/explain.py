"""Print the page behind a code; without a code, list them all."""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from paceline.cli.terminal import ascii_only, room, use_color
from paceline.errors import UsageError
from paceline.option import Option, Verb
from paceline.rules import page_of, pages
from paceline.spelling import nearest
from paceline.views.page import code_list, page_sections, page_text

SCHEMA = "paceline.explain/1"
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
            print(json.dumps(codes_facts(known)))
        else:
            print(code_list(known, width=room(sys.stdout), ascii_only=ascii_only(sys.stdout)))
        return 0
    code = args.code.strip().upper()
    page = page_of(code)
    if page is None:
        near = _in_full(code) or nearest(code, pages())
        raise UsageError(
            "U01",
            f"no page for the code {args.code!r}",
            saw=f"the nearest one is {near}" if near else "codes are a letter and two digits",
            next=f"paceline explain {near}" if near else "paceline explain",
        )
    if args.json:
        print(json.dumps(page_facts(code, page)))
    else:
        print(page_text(code, page, color=use_color(args.color, sys.stdout)))
    return 0


def _in_full(code: str) -> str:
    """C01 for C1; "" if there is no such page."""
    full = f"{code[:1]}0{code[1:]}"
    return full if len(code) == 2 and page_of(full) is not None else ""


def codes_facts(pages: Mapping[str, str]) -> dict[str, Any]:
    """Every code with the title of its page, for a program."""
    codes = {code: page_sections(pages[code])["title"] for code in sorted(pages)}
    return {"schema": SCHEMA, "codes": codes}


def page_facts(code: str, page: str) -> dict[str, Any]:
    """One page for a program."""
    return {"schema": SCHEMA, "code": code, **page_sections(page)}
