"""Which deltas the validator recomputes a partition from. No Spark in here."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltacompact
from deltacompact import DeltaStreamCatalog, Settings
from deltacompact.base.model import Partition
from deltacompact.spark.history import history
from deltacompact.storage.memory import MemoryStore

ALL = Partition()
DESTINATION = {"destination_compacted_table_id": "copy"}


@pytest.fixture
def catalog():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    return catalog


def append(catalog, *positions):
    for position in positions:
        catalog.append("t", pa.table({"id": [position]}), stream_position=position)


def compacted(catalog, **options):
    catalog.table("t").compact(settings=Settings(executor="local", local_threads=1), **options)


def found(catalog, table="t"):
    """(watermark of the base, folded, later), whose rows must be all that live."""
    past = history(catalog, table, ALL, catalog.state(table, ALL))
    positions = [[delta.position for delta in deltas] for deltas in (past.folded, past.later)]
    of_base = [pq.read_table(catalog.store.open(file.path)) for file in past.base.files] if past.base else []
    brought = [delta.position for delta in (*past.folded, *past.later) if delta.files]
    based = [id_ for rows in of_base for id_ in rows["id"].to_pylist()]
    assert catalog.read(table)["id"].to_pylist() == sorted([*based, *brought])
    assert (past.base is None) == (past.note is None)
    return (past.base.watermark if past.base else None, *positions)


def test_what_a_retraction_took_out_is_not_folded_and_what_came_before_still_is(catalog):
    """The versions before the retraction were taken for those of other contents."""
    append(catalog, 80, 90)
    compacted(catalog)
    append(catalog, 95)
    deltacompact.retract(catalog, "t", 95)
    append(catalog, 99)
    assert found(catalog) == (None, [80, 90], [99])
    compacted(catalog)
    compacted(catalog, **DESTINATION)
    assert found(catalog) == found(catalog, "copy") == (None, [80, 90, 99], [])
    append(catalog, 100)
    deltacompact.retract(catalog, "t", 100)
    compacted(catalog)
    assert found(catalog) == found(catalog, "copy") == (None, [80, 90, 99], [])


def test_a_restatement_at_the_position_of_a_retracted_delta_is_folded(catalog):
    append(catalog, 80, 90)
    deltacompact.retract(catalog, "t", 90)
    catalog.restate("t", pa.table({"id": [90]}))
    compacted(catalog)
    assert found(catalog) == (None, [90], [])


def test_a_late_delta_that_is_retracted_while_a_compaction_runs_is_not_folded(catalog):
    append(catalog, 70, 80)
    deltacompact.retract(catalog, "t", 70)
    doing = [partial(append, catalog, 90, 95), partial(deltacompact.retract, catalog, "t", 90)]

    def meanwhile(event):
        while doing:
            doing.pop(0)()

    compacted(catalog, event_sinks=[meanwhile])
    assert not doing
    assert found(catalog) == (None, [80], [95])
    compacted(catalog)
    assert found(catalog) == (None, [80, 95], [])
    assert [made.operation for made in catalog.table("t").history()] == ["create", "compact", "compact"]


def test_a_version_that_a_rollback_or_the_retraction_of_a_file_began_is_the_base_of_what_came_since(catalog):
    append(catalog, 80)
    compacted(catalog)
    append(catalog, 90)
    compacted(catalog)
    catalog.table("t").rollback("1")
    append(catalog, 95)
    assert found(catalog) == (80, [], [90, 95])
    compacted(catalog)
    assert found(catalog) == (80, [90, 95], [])
    append(catalog, 97, 98)
    taken = catalog.state("t", ALL).deltas[0].files[0].path
    deltacompact.retract_file(catalog, "t", taken)
    assert found(catalog)[0] == 95


def test_a_destination_of_which_a_delta_was_retracted_since_is_its_own_base(catalog):
    append(catalog, 70, 80, 90)
    deltacompact.retract(catalog, "t", 90)
    compacted(catalog, **DESTINATION)
    assert found(catalog, "copy") == (None, [70, 80], [])
    deltacompact.retract(catalog, "t", 70)
    assert found(catalog, "copy") == (80, [], [])
