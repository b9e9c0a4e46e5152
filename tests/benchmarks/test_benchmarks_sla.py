"""Expected against actual: what the report counts, and one small run of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import sla
from benchmarks.grids import write_between
from benchmarks.sla import BEGIN, END, Ran, lines_of, markdown_of, noise_of

pytestmark = pytest.mark.processes

ONE = Ran("t", "later", 1_000, 10**6, expected_s=1.0, low_s=0.8, high_s=1.2, seconds=1.0, again_s=None, load=0.5)


def test_what_adheres_is_covered_and_how_far_off_it_is() -> None:
    ran = [replace(ONE, seconds=seconds) for seconds in (0.5, 0.8, 1.0, 1.1, 1.15, 1.2, 1.25, 2.0)]
    (line, *_) = lines_of(ran)
    assert (line.name, line.sessions) == ("all", 8)
    assert line.adherence == 4 / 8 and line.coverage == 5 / 8 and line.width == pytest.approx(0.4)
    assert line.error == pytest.approx((0.2 / 1.2 + 0.25 / 1.25) / 2)
    assert line.error_p90 == pytest.approx(0.65)


def test_sessions_are_told_apart_once_rates_are_learned() -> None:
    ran = (
        [replace(ONE, kind="first", seconds=0.1)] * 50 + [replace(ONE, kind="first")] * 2 + [replace(ONE, seconds=9.0)]
    )
    counts = {line.name: line.sessions for line in lines_of(ran)}
    assert counts == {
        "all": 53,
        "after the first 50": 3,
        "of these, first compactions": 2,
        "later ones": 1,
        "of 1 to 4 s": 2,
        "of more than 4 s": 1,
    }


def test_the_noise_is_what_the_same_session_differs_from_itself() -> None:
    assert noise_of([ONE]) is None
    twice = [replace(ONE, again_s=again) for again in (1.1, 1 / 1.1, 1.5)]
    assert noise_of(twice) == pytest.approx(0.1)


def test_the_report_goes_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    text = markdown_of([ONE, replace(ONE, again_s=1.1)], 2)
    write_between(BEGIN, text, END, page)
    assert page.read_text() == f"before\n{BEGIN}\n{text}\n{END}\nafter\n" and "| all | 2 | 100% |" in text
    write_between(BEGIN, text, END, page)
    assert page.read_text().count(text) == 1
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no place"):
        write_between(BEGIN, text, END, page)


def test_sessions_are_planned_run_and_learned_from(tmp_path: Path) -> None:
    ran = list(sla.run(9, seed=3, scale=0.01, folder=tmp_path))
    assert len(ran) == 9 and {one.kind for one in ran} == {"first", "later"}
    assert all(0 < one.low_s <= one.expected_s <= one.high_s and one.seconds > 0 for one in ran)
    assert sum(one.again_s is not None for one in ran) == 1, "every tenth, counted from the first"
    assert not (tmp_path / "copy").exists()
