"""`certify`: what was written is read again, and only the rows that were read are committed; the log tells of them."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from row_faults import FAULTS, lost, twice
from stores import CHANGES, Crash, FailsAt, InterceptedStore, copy_of

from deltacompact import CorruptionError, DeltaStreamCatalog, InputError, Settings
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.catalog.fingerprints import DUCKDB, partition_fingerprints
from deltacompact.session import compacted_files
from deltacompact.steps import arrange, materialize
from deltacompact.storage.memory import MemoryStore

CERTIFYING = Settings(executor="local", local_threads=1, certify=True)


@pytest.fixture
def orders():
    table = DeltaStreamCatalog(MemoryStore()).create_table("orders", partition_keys=["day"], primary_keys=["id"])
    table.append(pa.table({"id": [1, 2, 3], "v": ["a", "b", None]}), {"day": "mon"})
    return table


def compacted(table):
    (partition,) = table._catalog.partitions("orders")
    return table._catalog.state("orders", partition).compacted


def report(table, by="self"):
    (partition,) = table._catalog.partitions("orders")
    return partition_fingerprints(table._catalog, "orders", partition, by)


def test_each_file_tells_its_fingerprint_and_a_later_version_keeps_it(orders):
    orders.compact(settings=CERTIFYING, rows_per_compacted_file=2)
    assert [file.fingerprint.rows for file in compacted(orders).files] == [2, 1]
    assert compacted(orders).fingerprint == orders.fingerprint()
    orders.append(pa.table({"id": [3], "v": ["z"]}), {"day": "mon"})
    for by in ("self", DUCKDB):
        stored, live = report(orders, by).states
        assert (stored.recorded, live.recorded) == (stored.found, None)
        assert live.found == orders.fingerprint() != stored.found
    orders.compact(settings=CERTIFYING, rows_per_compacted_file=2)
    assert compacted(orders).fingerprint == live.found
    assert "as recorded" in str(report(orders))


def test_a_version_says_nothing_of_rows_that_nobody_added_up(orders):
    orders.compact(settings=CERTIFYING)
    orders.append(pa.table({"id": [3], "v": ["z"]}), {"day": "mon"})
    orders.compact(settings=Settings(executor="local", local_threads=1, rewrite_dead_fraction=0.9))
    assert compacted(orders).fingerprint is None
    (stored,) = report(orders).states
    assert stored.ok and stored.found == orders.fingerprint()


def test_columns_of_the_partition_that_only_some_files_have_are_no_fault(orders):
    orders.compact(settings=CERTIFYING, rows_per_compacted_file=3)
    orders.append(pa.table({"id": [9], "v": ["z"], "day": ["mon"]}), {"day": "mon"})
    orders.compact(settings=CERTIFYING, rows_per_compacted_file=3)
    (stored,) = report(orders).states
    assert stored.ok and stored.found == orders.fingerprint()


@pytest.mark.parametrize("by", ["", "id"])
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_committed_of_rows_that_changed_on_the_way(orders, monkeypatch, fault, by):
    live_rows, arranged = materialize._live_rows, arrange._rows
    monkeypatch.setattr(materialize, "_live_rows", lambda *given: (fault(rows) for rows in live_rows(*given)))
    monkeypatch.setattr(arrange, "_rows", lambda *given: (rows and fault(rows) for rows in arranged(*given)))
    counted = r"compacted file \d got [24] rows, 3 were"
    with pytest.raises(
        CorruptionError, match=counted if fault in (twice, lost) else "fingerprint.* 3:.*nothing is committed"
    ):
        orders.compact(settings=CERTIFYING, cluster_by=by)
    assert compacted(orders) is None
    monkeypatch.undo()
    orders.compact(settings=CERTIFYING, cluster_by=by)
    assert compacted(orders).fingerprint == orders.fingerprint()


@pytest.mark.parametrize("by", ["self", DUCKDB])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_compacted_file_with_other_rows_than_its_log_tells_is_not_valid(orders, fault, by):
    """Another process has written the file again, as valid Parquet."""
    orders.compact(settings=CERTIFYING)
    store, (file,) = orders._catalog.store, compacted(orders).files
    with store.open(file.path) as source:
        rows = pq.read_table(source)
    with store.writer(file.path) as sink:
        pq.write_table(fault(rows), sink)
    again = DeltaStreamCatalog(store).table("orders")
    if fault in (twice, lost):
        with pytest.raises(InputError, match=r"holds [24] rows where the log says 3"):
            report(again, by)
    else:
        assert not report(again, by).ok


def test_a_log_that_tells_of_other_rows_is_not_valid(orders, monkeypatch):
    wrong = Fingerprint(3, 7)
    monkeypatch.setattr(materialize, "certified", lambda *given: wrong)
    orders.compact(settings=CERTIFYING)
    assert not report(orders).ok
    assert f"NOT VALID: compacted rows {orders.fingerprint()}, but {wrong} is recorded" in str(report(orders))


@pytest.mark.parametrize("damaged", ["3:0", "", 7])
def test_a_fingerprint_that_is_damaged_in_the_log_is_not_read_as_none(orders, damaged):
    orders.compact(settings=CERTIFYING)
    store, said = orders._catalog.store, str(compacted(orders).fingerprint)
    objects = {stat.path: store.get(stat.path) for stat in store.list("")}
    (entry,) = (path for path, data in objects.items() if "/stream/" in path and said.encode() in data)
    store.put(entry, objects[entry].replace(json.dumps(said).encode(), json.dumps(damaged).encode()))
    with pytest.raises(CorruptionError, match=f"{entry} is not a log entry as we write them"):
        report(DeltaStreamCatalog(store).table("orders"))


@pytest.mark.parametrize("by", ["", "id"])
def test_what_a_format_gives_back_in_another_type_is_no_fault(orders, by):
    day = pa.array([86_400_000], pa.date64())
    orders.append(pa.table({"id": [4], "d": day, "n": pa.StructArray.from_arrays([day], ["d"])}), {"day": "mon"})
    orders.compact(settings=CERTIFYING, compacted_file_content_type="orc", cluster_by=by)
    assert compacted(orders).fingerprint == orders.fingerprint()


@pytest.mark.parametrize("by", ["", "id"])
@pytest.mark.parametrize("first", [False, True])
def test_outputs_of_an_attempt_that_was_not_certified_are_not_taken_for_certified(orders, by, first):
    """They have no fingerprint: either nobody had read them again, or all of them were held for damaged."""

    def interrupted(kind, path, act):
        if "/stream/" in path and kind == "put_if_absent":
            raise Crash(path)
        return act()

    store = orders._catalog.store
    dying = DeltaStreamCatalog(InterceptedStore(store, interrupted)).table("orders")
    with pytest.raises(Crash):
        dying.compact(settings=replace(CERTIFYING, certify=first), cluster_by=by)
    orders.compact(settings=replace(CERTIFYING, certify=not first), cluster_by=by)
    assert compacted(orders).fingerprint == (None if first else orders.fingerprint())


@pytest.mark.parametrize("by", ["", "id"])
def test_a_session_that_was_killed_certifies_when_it_is_resumed_wherever_it_died(orders, by, monkeypatch):
    """What was written before the death is taken over with its fingerprint, and the rest is read again."""
    monkeypatch.setattr(compacted_files, "BATCH_TASK_S", 0.0)  # each output is recorded at once
    options = {"settings": CERTIFYING, "cluster_by": by, "rows_per_compacted_file": 1}
    written_again = []
    for number in count():
        store, crashing = copy_of(orders._catalog.store), FailsAt(number, kinds=CHANGES, error=Crash)
        with contextlib.suppress(Crash):
            DeltaStreamCatalog(InterceptedStore(store, crashing)).table("orders").compact(**options)
        dead = outputs_in(store)
        table = DeltaStreamCatalog(store).table("orders")
        table.compact(**options)
        assert compacted(table).fingerprint == table.fingerprint() == orders.fingerprint(), crashing.failed
        assert [file.fingerprint.rows for file in compacted(table).files] == [1, 1, 1]
        written_again.append(len(outputs_in(store) - dead))
        if crashing.failed is None:
            break
    assert (written_again[0], written_again[-1]) == (3, 0)
    assert sorted(written_again, reverse=True) == written_again and {1, 2} <= {*written_again}


def outputs_in(store):
    return {stat.path for stat in store.list("orders/day=mon/data/") if stat.path.endswith(".parquet")}
