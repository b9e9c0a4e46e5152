"""Expected against actual: what the report counts, and one small run of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from benchmarks import sla
from benchmarks.grids import write_between
from benchmarks.sla import BEGIN, END, Line, Measured, Ran, chosen, markdown_of, noise_of
from benchmarks.sla_tables import ALL_SIZES, LARGE, WIDTHS, tables
from sessions.base.model import Estimate
from sessions.planning.observations import Observation

pytestmark = pytest.mark.processes

SECOND = Measured(Estimate(1.0, 0.8, 1.2, 0.0, 1.5), 1.0)
SEEN = Observation("s", "t", (1.0,), 1.0, 1.0, 0.0)
ONE = Ran("t", "later", 1, 1_000, 10**6, SECOND, SECOND, 0.5, SEEN)


def took(seconds: float, **changes: object) -> Ran:
    return replace(ONE, cpu=replace(SECOND, took=seconds), **changes)  # type: ignore[arg-type]


def test_what_is_covered_and_kept_and_how_far_off_it_is() -> None:
    line = Line.of("all", [replace(SECOND, took=seconds) for seconds in (0.5, 0.8, 1.0, 1.1, 1.15, 1.2, 1.25, 2.0)])
    assert line.sessions == 8 and line.coverage == 5 / 8 and line.width == pytest.approx(0.4)
    assert line.kept == 7 / 8 and line.slack == pytest.approx((1.5 / 1.1 + 1.5 / 1.15) / 2 - 1)
    assert line.error == pytest.approx((0.2 / 1.2 + 0.25 / 1.25) / 2)
    assert line.error_p90 == pytest.approx(0.65)


def test_sessions_are_told_apart_once_rates_are_learned() -> None:
    ran = [took(0.1, kind="first", number=0)] * 50 + [took(1.0, kind="first", number=0)] * 2
    ran += [took(2.0, number=0), took(9.0, number=1)]
    assert {name: len(some) for name, some in chosen(ran)} == {
        "all": 54,
        "after the first 50": 4,
        "of these, first compactions": 2,
        "second ones": 1,
        "from the third on": 1,
        "of 1 to 5 CPU s": 3,
        "of 5 to 60 CPU s": 1,
    }


def test_the_noise_is_what_the_same_session_differs_from_itself() -> None:
    assert noise_of([SECOND]) is None
    twice = [replace(SECOND, again=again) for again in (1.1, 1 / 1.1, 1.5)]
    assert noise_of(twice) == pytest.approx(0.1)


def test_the_report_goes_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    text = markdown_of([ONE, replace(ONE, cpu=replace(SECOND, again=1.1), wall=replace(SECOND, again=1.3))], 2)
    write_between(BEGIN, text, END, page)
    assert page.read_text() == f"before\n{BEGIN}\n{text}\n{END}\nafter\n" and "|all|2|100%|" in text
    assert "differ by 10% of CPU and 30% of wall seconds" in text
    write_between(BEGIN, text, END, page)
    assert page.read_text().count(text) == 1
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no place"):
        write_between(BEGIN, text, END, page)


def test_sessions_are_planned_run_and_learned_from(tmp_path: Path) -> None:
    ran = list(sla.run(9, seed=3, sizes=ALL_SIZES, scale=0.01, folder=tmp_path))
    assert len(ran) == 9 and {session.kind for session in ran} == {"first", "later"}
    for measured in [session.wall for session in ran] + [session.cpu for session in ran]:
        expected = measured.expected
        assert 0 < expected.low_s <= expected.seconds <= expected.high_s <= expected.promise_s and measured.took > 0
    assert all(set(session.seen.cpu_s) >= {"fold", "session"} for session in ran)
    assert sum(session.cpu.again is not None for session in ran) == 1, "every tenth, counted from the first"
    assert not (tmp_path / "copy").exists()


def test_large_tables_get_deltas_of_some_percent_wherever_they_fall() -> None:
    drawn = [table for table, _ in islice(tables(3, LARGE, 1.0), 60)]
    assert {table.where for table in drawn} == {"newest", "anywhere", "new keys"}
    assert all(0.019 < table.share < 0.32 and not table.text for table in drawn), "so that a table has many sessions"
    assert min(table.rows * WIDTHS[table.width] + 60 * table.rows for table in drawn) > 500_000_000
