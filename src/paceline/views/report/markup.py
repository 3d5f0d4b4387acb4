"""HTML and SVG as strings. Whatever is not markup is escaped: run names, logs and exceptions are written by anybody."""

import html
import re
from collections.abc import Mapping
from typing import Any

from paceline.views.report.assets import digest, packed, script, style_sheet

# Besides what HTML needs: characters that change how a line is shown, and those that no file may contain.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\ufffe\uffff]"
)
_CODES = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[@-Z\\\\^_])")
_EMPTY = frozenset({"meta", "br", "hr", "line", "rect", "path", "polyline"})


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


def escaped(text: object) -> Markup:
    """Text as HTML. Colour codes go, other control characters are shown as symbols."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(without_controls(str(text))))


def without_controls(text: str) -> str:
    """Text without colour codes, with other control characters as symbols."""
    return _CONTROLS.sub(_symbol, _CODES.sub("", text))


def element(tag: str, /, *children: object, **attributes: object) -> Markup:
    """One element. An attribute that is None or False is left out, True stands alone; a trailing underscore of its name is dropped.

    Holds:   element("p", "a<b", class_="x") == '<p class="x">a&lt;b</p>'
    """
    parts = [tag]
    for key, value in attributes.items():
        spelled = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(spelled)
        elif value is not None and value is not False:
            parts.append(f'{spelled}="{escaped(value)}"')
    opened = f"<{' '.join(parts)}>"
    if tag in _EMPTY and not children:
        return Markup(opened if tag in ("meta", "br", "hr") else f"{opened}</{tag}>")
    return Markup(f"{opened}{''.join(map(escaped, children))}</{tag}>")


def joined(parts: object) -> Markup:
    """Pieces of HTML one after the other; text among them is escaped."""
    return Markup("".join(map(escaped, parts)))  # type: ignore[call-overload]


def document(title: str, *body: object, model: Mapping[str, Any] | None = None) -> str:
    """A whole page, which loads nothing. Its policy allows one style sheet and, with a `model`, one script, each by its hash.

    The script finds the model, plain data, in the page and draws it; without a model no script is there.
    """
    style = style_sheet()
    policy = f"default-src 'none'; style-src {digest(style)}; base-uri 'none'; form-action 'none'"
    scripts: tuple[Markup, ...] = ()
    if model is not None:
        policy = f"{policy}; script-src {digest(script())}; connect-src 'none'; img-src 'none'"
        data = element("script", Markup(packed(model)), type="application/octet-stream", id="model")
        scripts = (data, element("script", Markup(script())))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", Markup(style)),
    )
    return f"<!doctype html>\n{element('html', head, element('body', *body, *scripts), lang='en')}\n"


def _symbol(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else f"\\u{code:04x}"
