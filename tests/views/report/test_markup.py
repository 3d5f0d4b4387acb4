"""What anybody wrote becomes text and nothing else."""

import base64
import hashlib
import re

import pytest
from html_tree import HOSTILE, Tree
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.views.report.markup import document, element, escaped


def page_of(text):
    return document(text, element("p", text, title=text), element("pre", f"before {text} after"))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_changes_no_element(text):
    page = page_of(text)
    assert Tree(page).elements == Tree(page_of("harmless")).elements
    page.encode()


@settings(deadline=None)
@given(st.text())
def test_no_text_changes_an_element(text):
    page = page_of(text)
    assert Tree(page).elements == Tree(page_of("harmless")).elements
    page.encode()


def test_control_characters_are_seen_and_colours_are_gone():
    assert escaped("a\x00b\x1b[31mred\x1b[0m\u202e") == "a\u2400bred\\u202e"


def test_an_element_has_its_attributes_and_its_children():
    made = element("a", "x < y", element("b", "z"), href="#a&b", class_="one", hidden=None, open=True)
    assert made == '<a href="#a&amp;b" class="one" open>x &lt; y<b>z</b></a>'


def test_the_policy_allows_the_one_style_sheet_and_nothing_else():
    page = document("title", element("p", "text"))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#x27;", "'")
    style = re.search(r"<style>(.*)</style>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert not re.search(r"\sstyle=|<script|<link|url\(|https?:", page)
