"""Heat: reads that come in any shares, again and again, add up to the same; what grows for months is forgotten."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.layout.heat import Heat, SourcedRead, heat_document, heat_from_document
from deltacompact.layout.reads import HALF_LIFE_S, Read, columns_asked, heat_of

NOW = 1_795_400_000.0
DAY_S = 86_400.0


def told(number, *columns, source="app-1", at_s=NOW):
    return SourcedRead(source, number, Read("ns.t", columns, 1, 0, at_s))


def test_a_log_that_has_grown_adds_what_came_since():
    reads = [told(0, "day"), told(1, "day", "id"), told(1, "day"), told(2, "id")]
    heat = Heat().with_reads(reads[:3], NOW).with_reads(reads[:3], NOW).with_reads(reads, NOW)
    assert heat.columns == {"day": 3.0, "id": 2.0}
    assert heat.with_reads([told(0, "id", source="app-2")], NOW).columns["id"] == 3.0


@given(
    st.lists(st.tuples(st.sampled_from(["day", "id", "name"]), st.floats(-3, 60)), max_size=30),
    st.lists(st.floats(0, 3), max_size=5),
)
def test_however_reads_are_told_their_heat_is_that_of_all(reads, steps):
    told_of = [told(number, name, at_s=NOW - age * DAY_S) for number, (name, age) in enumerate(reads)]
    heat, now = Heat(), NOW
    for place, step in enumerate(steps):
        heat = heat.with_reads(told_of[: (place + 1) * len(told_of) // len(steps)], now)
        now += step * DAY_S
    heat = heat.with_reads(told_of, now)
    expected = heat_of([report.read for report in told_of], now)
    early = 2 ** (sum(steps) / 7)  # a read to come counted in full when it was told, and is older by now
    for name in {"day", "id", "name"}:
        found, of_all = heat.columns.get(name, 0.0), expected.get(name, 0.0)
        assert of_all / early - 0.04 <= found <= of_all + 0.001
    assert heat_from_document(json.loads(json.dumps(heat_document(heat)))) == heat


def test_a_folder_of_many_logs_adds_nothing_when_it_is_given_again():
    """Of more than 1,000 logs the others were forgotten, and their reads counted again."""
    logs = [told(0, "day", source=f"app {number}") for number in range(1_500)]
    assert Heat().with_reads(logs, NOW).with_reads(logs, NOW).columns == {"day": 1_500.0}


def test_what_grows_for_months_is_forgotten(monkeypatch):
    heat = Heat()
    for day in range(400):
        heat = heat.with_reads(
            [told(0, f"column {day}", source=f"app {day}", at_s=NOW + day * DAY_S)], NOW + day * DAY_S
        )
    assert len(heat.columns) <= 71  # 2^-10
    assert len(heat.taken) <= 56
    monkeypatch.setattr("deltacompact.layout.heat.SOURCES_MAX", 100)
    many = [told(0, "day", source=f"app {number}") for number in range(150)]
    assert len(Heat().with_reads(many, NOW).taken) == 100


def test_a_clock_that_went_ahead_costs_a_decay_and_no_more():
    ahead = Heat().with_reads([told(0, "day")], NOW + 1000 * HALF_LIFE_S)
    assert ahead.columns == {}  # too old, as it says
    ahead = Heat().with_reads([told(0, "day", at_s=NOW + 1000 * HALF_LIFE_S)], NOW + 1000 * HALF_LIFE_S)
    back = ahead.with_reads([told(1, "id", at_s=NOW)], NOW)
    assert (back.at_s, dict(back.columns)) == (NOW, {"day": 1.0, "id": 1.0})
    assert back.now(NOW + HALF_LIFE_S).columns["day"] == pytest.approx(0.5)


def test_no_name_of_a_source_is_kept_and_columns_that_are_gone_are_left_out():
    heat = Heat().with_reads([told(0, "day", "gone", source="s3://logs/of-alice/app-1")], NOW)
    assert "alice" not in json.dumps(heat_document(heat))
    assert [str(column) for column in columns_asked(heat.known(["day"]))] == ["day"]
