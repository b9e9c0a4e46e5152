"""Texts of others do nothing to a terminal, and can be written to one."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.base.printable import LINES, named, printable

ANY = st.text(st.characters(), max_size=40)
"""With halves of surrogate pairs, which names of files may have."""


@given(ANY)
def test_a_text_gets_one_line_that_a_terminal_does_not_obey(text):
    said = printable(text)
    assert not {"Cc", "Cs", "Zl", "Zp"} & {unicodedata.category(letter) for letter in said}
    assert said.encode() and len(said.splitlines()) == 1 if text else said == ""


@given(ANY)
def test_lines_stay_where_they_are_asked_for(text):
    said = printable(text, LINES)
    assert [said.count(kept) for kept in LINES] == [text.count(kept) for kept in LINES]
    assert printable(said) == printable(text)


@pytest.mark.parametrize("text", ["day=\u05e9\u05dc\u05d5\u05dd", "日本語", "a\u00a0b", "é"])
def test_what_moves_nothing_stays(text):
    assert printable(text) == text


def test_a_partition_is_named_in_a_line():
    assert named({"day": "1\n2\x1b[2J", "x": None}) == r"day=1\n2\x1b[2J/x=null"
