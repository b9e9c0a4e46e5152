"""Which snapshots are meant: those that `validate` compares, and those that a name, a number or a time tells."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made_tables import state

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.base.moments import milliseconds_of, moment_of
from deltacompact.iceberg.as_of import snapshot_as_of
from deltacompact.iceberg.comparison import comparison
from deltacompact.iceberg.settled import COLUMNS
from deltacompact.iceberg.table.metadata import MAIN, PUBLISHES, SESSION, TOKEN, Ref, Snapshot

FLINK: dict[str, str] = {}
COMPACTED = {SESSION: "5c" * 16}
UPSERTED = COMPACTED | {COLUMNS: "id"}
BATCH = {SESSION: "append-1", TOKEN: "batch 7"}
PUBLISHED = {SESSION: f"{PUBLISHES}77aa"}


def table(*summaries, times=(), refs=None):
    """A branch with one snapshot for each summary: 1, 2, …"""
    found = {
        number: Snapshot(number, number - 1 or None, number, time_ms, f"snap-{number}", summary=summary)
        for number, (summary, time_ms) in enumerate(zip(summaries, times or range(99), strict=False), 1)
    }
    heads = {MAIN: Ref(len(found), "branch")} | {name: Ref(number, "tag") for name, number in (refs or {}).items()}
    return replace(state().metadata, snapshots=found, refs=heads)


@pytest.mark.parametrize("rows", [FLINK, BATCH, PUBLISHED])
def test_our_newest_compaction_is_compared_with_what_came_before_it(rows):
    assert (found := comparison(table(rows, rows, COMPACTED, COMPACTED, rows), MAIN)).before == 2
    assert found.after == 4
    assert "no compaction of ours" in (comparison(table(rows, rows), MAIN).nothing_to_do or "")
    with pytest.raises(InputError, match="no compaction of ours: name --before"):
        comparison(table(rows, rows), MAIN, after=2)
    with pytest.raises(InputError, match="an upsert, which removes rows by design"):
        comparison(table(rows, UPSERTED, rows), MAIN)


MORNING, NOON = (milliseconds_of(moment_of(time)) for time in ("2026-11-22 09:10", "2026-11-22 12:00"))


def test_a_branch_or_tag_is_meant_also_where_its_name_begins_with_a_date():
    names = {"2026-11-22": 1, "2026-11-22-end": 2, "2026-11-22 10:00": 3}
    metadata = table({}, {}, {}, times=(MORNING, NOON, NOON + 1), refs=names)
    assert {name: snapshot_as_of(metadata, name, MAIN).snapshot_id for name in names} == names
    assert snapshot_as_of(metadata, moment_of("2026-11-22 10:00"), MAIN).snapshot_id == 1
    assert snapshot_as_of(metadata, "2026-11-22 10:01", MAIN).snapshot_id == 1
    assert snapshot_as_of(metadata, "2", MAIN).snapshot_id == snapshot_as_of(metadata, 2, MAIN).snapshot_id == 2
    with pytest.raises(NotFoundError, match="no snapshot of 2026-11-21"):
        snapshot_as_of(metadata, "2026-11-21", MAIN)
