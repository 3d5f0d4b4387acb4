"""Leaves secrets out of what is sent on: values behind names like TOKEN, and credentials in URLs."""

import re
from typing import Any

from paceline.probes.environment import without_secrets as without_values

HIDDEN = "[left out]"
_NAME = r"[\w.-]*(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|credential)[\w.-]*"
_NAMED = re.compile(rf"(?i)(?P<name>{_NAME})(?P<sign>['\"]?\s*[=:]\s*)(?!{re.escape(HIDDEN)})['\"]?[^\s'\",;]+['\"]?")
_OPTION = re.compile(rf"(?i)--?{_NAME}\Z")
_IN_URL = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^/\s@]+@")
_IN_QUERY = re.compile(r"(?i)(?P<name>[?&][\w.-]*(?:key|token|secret|signature|sig|credential)[\w.-]*=)[^&\s'\"]+")


def without_secrets(text: str) -> str:
    """Text without them. What is left out is marked.

    Holds:   without_secrets("HF_TOKEN=abc x") == "HF_TOKEN=[left out] x"; a text without such names stays as it is
    """
    text = _IN_QUERY.sub(rf"\g<name>{HIDDEN}", _IN_URL.sub(rf"\g<scheme>{HIDDEN}@", text))
    return _NAMED.sub(rf"\g<name>\g<sign>{HIDDEN}", text)


def command_without_secrets(command: list[str]) -> list[str]:
    """The words of a command line: `--api-key VALUE` are two of them."""
    found: list[str] = []
    for word in without_values(command):
        is_value = bool(found) and _OPTION.match(found[-1]) is not None and not word.startswith("-")
        found.append(HIDDEN if is_value else without_secrets(word))
    return found


def redacted(facts: Any) -> Any:
    """Each string in plain data without secrets."""
    if isinstance(facts, str):
        return without_secrets(facts)
    if isinstance(facts, dict):
        return {name: redacted(value) for name, value in facts.items()}
    return [redacted(value) for value in facts] if isinstance(facts, list | tuple) else facts
