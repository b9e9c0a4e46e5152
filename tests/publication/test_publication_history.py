"""Random histories of a published table: after every compaction PyIceberg reads what `catalog.read` has."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from budgets import examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from iceberg_lake import Lake
from publications import LOCAL, Publications, T, configure

import deltacompact
from deltacompact.base.errors import InputError
from deltacompact.delta_streams.versions import retract, rollback
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.publication import publication
from deltacompact.publication.publication import PublicationResult, show_compacted

NO_SHRINK = (Phase.explicit, Phase.reuse, Phase.generate)
DAYS = st.sampled_from(["a", "b/1", None])
IDS = st.lists(st.integers(0, 12), min_size=1, max_size=8, unique=True)
STEPS = st.one_of(
    st.tuples(st.just("upsert"), DAYS, IDS, st.sampled_from(["plain", "wide", "more", "nested", "day"])),
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


def rows(ids, shape, day, number):
    """Rows in one of the shapes that a schema goes through."""
    columns = {"id": pa.array(ids, pa.int64() if shape == "wide" else pa.int32()), "n": pa.array([number] * len(ids))}
    if shape == "more":
        columns["text"] = pa.array([f"{number}-{id_}" for id_ in ids])
    if shape == "nested":
        columns["deep"] = pa.array([{"x": [id_], "y": str(number)} for id_ in ids])
    if shape == "day":
        columns["day"] = pa.array([day] * len(ids), pa.string())
    return pa.table(columns)


def died(catalog, table_id, target, partitions):
    """Stands for a process that dies after the switch, before it comes to the Iceberg table."""
    return PublicationResult(table_id, target)


def carry_out(published, number, step):
    """One step. What the history does not allow (nothing to roll back to) is no step."""
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


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck), phases=NO_SHRINK)
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_the_publication_has_the_rows_of_the_table_after_every_compaction(steps):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        lake = Lake(Path(folder), f"lake{uuid.uuid4().hex[:8]}")
        configure(lake, patch)
        published = Publications(lake, Path(folder) / "delta", ["day"])
        published.append(rows([1, 2, 3, 4, 5, 6, 7], "plain", "a", 0), day="a")
        published.compact()
        published.publish()
        for number, step in enumerate(steps, 1):
            carry_out(published, number, step)
            if step[0] == "compact":
                assert published.shown() == published.compacted()
        result = published.compact()
        assert result.publication.error is None
        assert published.shown() == published.compacted()
        assert published.catalog.publish(T).snapshot is None
        vacuum(published.catalog, T, age_min_s=0, force=True)
        assert published.shown() == published.compacted()


def test_a_settled_publication_asks_for_no_partition_in_vain(lake, tmp_path, monkeypatch):
    """show_compacted is told which partitions a job had: of others it neither adds nor removes files."""
    configure(lake, monkeypatch)
    published = Publications(lake, tmp_path / "delta", ["day"])
    for day in "ab":
        published.append([{"id": 1}], day=day)
    published.compact()
    published.publish()
    for day in "ab":
        published.append([{"id": 2}], day=day)
    with monkeypatch.context() as patch:
        patch.setattr(publication, "show_compacted", died)
        published.compact()
    only = [published.catalog.partition(T, {"day": "a"})]
    result = show_compacted(published.catalog, T, published.uri, only)
    assert result.error is None
    assert result.files_added > 0
    assert [row["id"] for row in published.shown() if row["day"] == "b"] == [1]
    deltacompact.compact(T, delta_catalog_client=published.catalog, settings=LOCAL)
    assert published.shown() == published.compacted()
