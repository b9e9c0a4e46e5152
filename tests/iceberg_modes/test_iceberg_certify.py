"""`certify` of a rewrite: only what was read is committed; snapshots with the same rows tell their fingerprint."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from iceberg_lake import SETTINGS

import deltacompact
from deltacompact import CorruptionError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.catalog.fingerprints import branch_fingerprints
from deltacompact.iceberg.table.metadata import RECORDED_FINGERPRINT
from deltacompact.iceberg_modes.rewrite import writing

T = "ns.t"
CERTIFYING = replace(SETTINGS, certify=True)
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
ALL = {"rewrite-all": True}


@pytest.fixture
def orders(lake):
    lake.create(T, COLUMNS)
    for first in (0, 3):
        lake.append(T, [{"id": first + number, "v": f"v{number}"} for number in range(3)])
    lake.delete_by_key(T, {"id": [1]})
    return deltacompact.open_catalog(lake.catalog).table(T)


def recorded(lake):
    return lake.state(T).snapshot.summary.get(RECORDED_FINGERPRINT)


@pytest.mark.parametrize("options", [ALL, ALL | {"cluster-by": "v"}], ids=str)
def test_a_snapshot_tells_its_fingerprint_and_the_next_keeps_it(lake, orders, options):
    orders.compact(options=options, settings=SETTINGS)
    assert recorded(lake) is None
    orders.compact(options=options, settings=CERTIFYING)
    assert recorded(lake) == str(orders.fingerprint()) and orders.fingerprint().rows == 5
    orders.compact(options=options, settings=SETTINGS)
    assert recorded(lake) == str(orders.fingerprint())
    lake.append(T, [{"id": 9, "v": None}])
    lake.delete_by_key(T, {"id": [9]})
    orders.compact("convert", settings=SETTINGS)
    assert recorded(lake) is None


@pytest.mark.parametrize("options", [ALL, ALL | {"cluster-by": "v"}], ids=str)
def test_nothing_is_committed_of_rows_that_changed_on_the_way(lake, orders, options, monkeypatch):
    before = lake.state(T).snapshot_id
    monkeypatch.setattr(writing, "of_output", lambda *given: Fingerprint(5, 7))
    with pytest.raises(CorruptionError, match=r"what was written of them 5:0+7: nothing is committed"):
        orders.compact(options=options, settings=CERTIFYING)
    assert lake.state(T).snapshot_id == before


def test_after_a_column_went_nothing_is_known(lake, orders):
    orders.compact(options=ALL, settings=CERTIFYING)
    head = lake.state(T).snapshot_id
    with lake.catalog.load_table(T).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("v")
    (found,) = branch_fingerprints(orders._catalog, T, before=head, after=head).states[:1]
    assert found.recorded is None and found.found == orders.fingerprint()
    orders.compact(options=ALL, settings=SETTINGS)
    assert recorded(lake) is None


def test_a_damaged_fingerprint_is_named(lake, orders):
    orders.compact(options=ALL, settings=CERTIFYING)
    head = lake.state(T).snapshot_id
    table = lake.catalog.load_table(T)
    snapshots = [one.model_dump(mode="json", by_alias=True) for one in table.metadata.snapshots]
    snapshots[-1]["summary"] |= {RECORDED_FINGERPRINT: "5:00f3"}
    lake.edit_metadata(T, {"snapshots": snapshots})
    with pytest.raises(CorruptionError, match=f"snapshot {head} of table 'ns.t' says .* '5:00f3', which is none"):
        branch_fingerprints(orders._catalog, T)


def test_manifests_that_are_written_anew_hold_the_same_rows(lake, orders):
    progress = {"partial-progress.enabled": True, "max-file-group-size-bytes": 1}
    orders.compact(options=ALL | progress, settings=CERTIFYING)
    before = lake.state(T).snapshot_id
    assert recorded(lake) == str(orders.fingerprint())
    orders.maintain(rewrite_manifests=True)
    assert lake.state(T).snapshot_id != before
    assert recorded(lake) == str(orders.fingerprint())
