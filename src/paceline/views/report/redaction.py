"""Leaves secrets out of what is sent on: values behind names like TOKEN, and credentials in URLs."""

import re
from typing import Any

from paceline.probes.environment import without_secrets as without_values

HIDDEN = "[left out]"
_SECRET = re.compile(r"(?i)api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|credential")
_SECRET_IN_QUERY = re.compile(r"(?i)key|token|secret|signature|sig|credential")
# A name is looked at by itself: a pattern that looks for a word in the middle of one reads a long line again and again.
_NAMED = re.compile(r"(?<![\w.-])(?P<name>[\w.-]+)(?P<sign>['\"]?\s*[=:]\s*)")
_IN_QUERY = re.compile(r"[?&](?P<name>[\w.-]+)=")
_VALUE = re.compile(rf"(?!{re.escape(HIDDEN)})['\"]?[^\s'\",;]+['\"]?")
_VALUE_IN_QUERY = re.compile(r"[^&\s'\"]+")
_OPTION = re.compile(r"--?[\w.-]+")
_IN_URL = re.compile(r"(?i)(?P<scheme>[a-z0-9+.-]://)[^/\s@]+@")


def without_secrets(text: str) -> str:
    """Text without them. What is left out is marked.

    Holds:   without_secrets("HF_TOKEN=abc x") == "HF_TOKEN=[left out] x"; a text without such names stays as it is
    """
    text = _without_values(_IN_URL.sub(rf"\g<scheme>{HIDDEN}@", text), _IN_QUERY, _SECRET_IN_QUERY, _VALUE_IN_QUERY)
    return _without_values(text, _NAMED, _SECRET, _VALUE)


def _without_values(text: str, named: re.Pattern[str], secret: re.Pattern[str], value: re.Pattern[str]) -> str:
    """Text without the values whose names have the word `secret`. What stands between two names is a name of its own: `url=token=abc`."""
    kept, end = [], 0
    for match in named.finditer(text):
        if match.start() < end or not secret.search(match["name"]):
            continue
        if hidden := value.match(text, match.end()):
            kept += [text[end : match.end()], HIDDEN]
            end = hidden.end()
    return "".join([*kept, text[end:]])


def command_without_secrets(command: list[str]) -> list[str]:
    """The words of a command line: `--api-key VALUE` are two of them."""
    found: list[str] = []
    for word in without_values(command):
        is_value = bool(found) and _is_secret_option(found[-1]) and not word.startswith("-")
        found.append(HIDDEN if is_value else without_secrets(word))
    return found


def _is_secret_option(word: str) -> bool:
    return _OPTION.fullmatch(word) is not None and _SECRET.search(word) is not None


def redacted(facts: Any) -> Any:
    """Each string in plain data without secrets: also one whose key has the name of a secret, as a hyperparameter's may."""
    if isinstance(facts, str):
        return without_secrets(facts)
    if isinstance(facts, dict):
        return {
            name: HIDDEN if value and isinstance(value, str) and _SECRET.search(str(name)) else redacted(value)
            for name, value in facts.items()
        }
    return [redacted(value) for value in facts] if isinstance(facts, list | tuple) else facts
