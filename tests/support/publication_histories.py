"""Random histories of a published table."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from publications import Publications, T

from deltacompact.base.errors import InputError
from deltacompact.delta_streams.versions import retract, rollback
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.publication import publication
from deltacompact.publication.publication import PublicationResult

NO_SHRINK = (Phase.explicit, Phase.reuse, Phase.generate)
DAYS = st.sampled_from(["a", "b/1", None])
IDS = st.lists(st.integers(0, 12), min_size=1, max_size=8, unique=True)


def steps(shapes: Sequence[str]) -> st.SearchStrategy[tuple[Any, ...]]:
    """The steps of a history, whose rows have these shapes."""
    return st.one_of(
        st.tuples(st.just("upsert"), DAYS, IDS, st.sampled_from(shapes)),
        st.tuples(st.just("delete"), DAYS, IDS),
        st.tuples(st.just("compact"), st.booleans()),
        st.tuples(st.just("compact one"), DAYS),
        st.tuples(st.just("compact unseen")),
        st.tuples(st.just("roll back"), DAYS, st.integers(0, 3)),
        st.tuples(st.just("restate"), DAYS, IDS),
        st.tuples(st.just("retract"), DAYS),
        st.tuples(st.just("publish")),
        st.tuples(st.just("vacuum")),
    )


def rows(ids: list[int], shape: str, day: str | None, number: int) -> pa.Table:
    """Rows in one of the shapes that the schema takes over time."""
    columns = {"id": pa.array(ids, pa.int64() if shape == "wide" else pa.int32()), "n": pa.array([number] * len(ids))}
    if shape == "more":
        columns["text"] = pa.array([f"{number}-{id_}" for id_ in ids])
    if shape == "nested":
        columns["deep"] = pa.array([{"x": [id_], "y": str(number)} for id_ in ids])
    if shape == "day":
        columns["day"] = pa.array([day] * len(ids), pa.string())
    return pa.table(columns)


def died(catalog: Any, table_id: str, target: str, partitions: Any) -> PublicationResult:
    """Replaces `publish` in a process that dies after the switch, before it writes to the Iceberg table."""
    return PublicationResult(table_id, target)


def carry_out(published: Publications, number: int, step: tuple[Any, ...]) -> None:
    """Carry out one step. A step that is impossible here (no version to roll back to) does nothing."""
    catalog = published.catalog
    match step:
        case ("upsert", day, ids, shape):
            published.append(rows(ids, shape, day, number), day=day)
        case ("delete", day, ids):
            published.append(pa.table({"id": pa.array(ids, pa.int32())}), "delete", day=day)
        case ("compact", purge):
            published.compact(purge=purge)
        case ("compact one", day):
            with contextlib.suppress(InputError):
                published.compact(partitions=[{"day": day}])
        case ("compact unseen",):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(publication, "show_compacted", died)
                published.compact()
        case ("roll back", day, version):
            with contextlib.suppress(InputError):
                rollback(catalog, T, str(version), {"day": day})
        case ("restate", day, ids):
            catalog.restate(T, rows(ids, "plain", day, number), {"day": day})
        case ("retract", day):
            with contextlib.suppress(InputError, IndexError):
                partition = catalog.partition(T, {"day": day})
                retract(catalog, T, catalog.state(T, partition).deltas[-1].position, partition)
        case ("publish",):
            catalog.publish(T)
        case ("vacuum",):
            vacuum(catalog, T, age_min_s=0, force=True)


def keeps_up(published: Publications, history: Sequence[tuple[Any, ...]]) -> None:
    """Assert that publication and table have the same rows after each compaction, and after a vacuum at the end."""
    published.append(rows([1, 2, 3, 4, 5, 6, 7], "plain", "a", 0), day="a")
    published.compact()
    published.publish()
    for number, step in enumerate(history, 1):
        carry_out(published, number, step)
        if step[0] == "compact":
            assert published.shown() == published.compacted()
    result = published.compact()
    assert result.publication.error is None
    assert published.shown() == published.compacted()
    assert published.catalog.publish(T).snapshot is None
    vacuum(published.catalog, T, age_min_s=0, force=True)
    assert published.shown() == published.compacted()
