"""A publication as Delta dies before every change, meets another one, or gets no answer: the next run repairs it."""

from __future__ import annotations

import time
from itertools import count
from types import SimpleNamespace

import pyarrow as pa
import pytest
from delta_publications import DeltaPublications
from dying import Crash, Dying, changed
from publications import LOCAL, T, plain, runs_at_the_same_time

import deltacompact
from deltacompact.base.errors import Interrupted, OutcomeUnknownError, StoreError
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.publication.delta import table
from deltacompact.storage.local import LocalStore

COUNTED = [(LocalStore, ("put", "put_if_absent", "delete"))]


@pytest.fixture
def orders(tmp_path):
    published = DeltaPublications(tmp_path)
    changed(published)
    return published


@pytest.mark.slow
def test_a_run_that_dies_at_any_operation_is_repaired_by_the_next(tmp_path, monkeypatch):
    """Every run ends with a checkpoint, so that it dies before and after each of its two puts as well."""
    monkeypatch.setattr(table, "COMMITS_BETWEEN_CHECKPOINTS", 1)
    numbers = count()

    def fresh():
        published = DeltaPublications(tmp_path / str(next(numbers)))
        changed(published)
        published.catalog = published.opened()
        return published

    published = fresh()
    with monkeypatch.context() as patch:
        whole = Dying(patch, COUNTED)
        published.compact()
    assert published.commits()[-1] and (published.out / "_delta_log" / f"{1:020d}.checkpoint.parquet").exists()
    puts = [number for number, name in enumerate(whole.operations) if name == "put_if_absent"]
    switched = puts[-3]  # then come the commit of the Delta table and its checkpoint
    for at, after in [death for death in whole.deaths() if death[0] >= switched]:
        published = fresh()
        before = published.shown()
        with monkeypatch.context() as patch:
            dying = Dying(patch, COUNTED, at, after)
            with pytest.raises((Crash, Interrupted)):
                published.compact()
        published.catalog = published.opened()
        left = published.shown()
        assert left == before or left == read(published), (at, after, dying.operations[-1])
        vacuum(published.catalog, T, age_min_s=0, force=True)
        assert published.shown() == left
        assert published.compact().publication.error is None
        assert published.shown() == published.compacted(), (at, after, dying.operations[-1])
        assert published.catalog.publish(T).snapshot is None
        vacuum(published.catalog, T, age_min_s=0, force=True)
        assert len(list(published.out.glob("deletion_vector_*"))) == 1
        landed = [action["txn"]["version"] for commit in published.commits() for action in commit if "txn" in action]
        assert len(landed) == len(set(landed))


def read(published):
    return plain(published.catalog.read(T).to_pylist())


def test_a_commit_whose_answer_was_lost_is_recognised(orders, monkeypatch):
    put_if_absent, lost = LocalStore.put_if_absent, []

    def unanswered(store, path, data):
        done = put_if_absent(store, path, data)
        if path.startswith("_delta_log/") and not lost:
            lost.append(path)
            raise StoreError("connection reset")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put_if_absent", unanswered)
        result = orders.compact().publication
    assert (len(lost), result.error, result.snapshot) == (1, None, 1)
    assert orders.shown() == orders.compacted()
    assert orders.catalog.publish(T).snapshot is None


def test_a_commit_of_which_nobody_knows_keeps_its_vectors_and_is_repaired(orders, monkeypatch):
    put_if_absent, get, lost = LocalStore.put_if_absent, LocalStore.get, []

    def unanswered(store, path, data):
        done = put_if_absent(store, path, data)
        if path.startswith("_delta_log/"):
            lost.append(path)
            raise StoreError("connection reset")
        return done

    def silent(store, path):
        if path in lost:
            raise StoreError("no route to host")
        return get(store, path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put_if_absent", unanswered)
        patch.setattr(LocalStore, "get", silent)
        error = orders.compact().publication.error
    assert isinstance(error, OutcomeUnknownError)
    assert "may or may not be committed" in str(error)
    assert orders.shown() == orders.compacted()
    assert orders.catalog.publish(T).snapshot is None


def test_a_store_that_refuses_leaves_no_vector_behind(orders, monkeypatch):
    def refused(store, path, data):
        raise StoreError("disk full")

    put_if_absent = LocalStore.put_if_absent
    with monkeypatch.context() as patch:
        patch.setattr(
            LocalStore,
            "put_if_absent",
            lambda store, path, data: (refused if path.startswith("_delta") else put_if_absent)(store, path, data),
        )
        patch.setattr(table, "put_certainly", lambda store, path, data, effect: refused(store, path, data))
        assert "disk full" in str(orders.compact().publication.error)
    assert not list(orders.out.glob("deletion_vector_*"))
    orders.catalog.publish(T)
    assert orders.shown() == orders.compacted()


def test_a_publisher_that_others_outrun_waits_and_gets_its_turn(orders, monkeypatch):
    """Thirty processes that show one partition each, for instance."""
    lost, waits, real = [], [], table.ShownDeltaTable._committed

    def committed(self, version, lines):
        lost.append(version)
        return len(lost) > 30 and real(self, version, lines)

    monkeypatch.setattr(table.ShownDeltaTable, "_committed", committed)
    monkeypatch.setattr(table, "time", SimpleNamespace(sleep=waits.append, monotonic=time.monotonic))
    assert orders.compact().publication.error is None
    assert orders.shown() == orders.compacted()
    assert len(waits) == 30 and len({wait_s for wait_s in waits if wait_s}) == 6, "random, so that they part"


def test_a_checkpoint_that_fails_fails_no_commit(orders, monkeypatch, caplog):
    monkeypatch.setattr(table, "COMMITS_BETWEEN_CHECKPOINTS", 1)
    with monkeypatch.context() as patch:
        patch.setattr(table.checkpoints, "checkpoint_file", None)
        assert orders.compact().publication.snapshot == 1
    assert "has no checkpoint of version 1" in caplog.text
    orders.append([{"id": 60}])
    orders.compact()
    assert (orders.out / "_delta_log" / f"{2:020d}.checkpoint.parquet").exists()


def test_no_run_shows_an_older_version_than_another_one_did(orders, monkeypatch):
    """A run reads the stream, another one compacts and publishes, the first one commits: it must not go back."""
    other, once = orders.opened(), []
    put_certainly = table.put_certainly

    def overtaken(*arguments):
        if not once:
            once.append(1)
            other.append(T, pa.table({"id": [77], "w": ["a column that the first run does not know"]}))
            deltacompact.compact(T, delta_catalog_client=other, settings=LOCAL)
        return put_certainly(*arguments)

    orders.append([{"id": 50}])
    with monkeypatch.context() as patch:
        patch.setattr(table, "put_certainly", overtaken)
        orders.compact()
    assert 77 in [row["id"] for row in orders.shown()]
    orders.catalog = orders.opened()
    assert orders.shown() == orders.compacted()
    assert len(list(orders.out.glob("deletion_vector_*"))) <= 2


def test_a_run_over_all_partitions_keeps_one_that_another_run_shows_meanwhile(tmp_path, monkeypatch):
    """A run that listed the partitions before it read the head took the new one for one of a dropped table."""
    by_day = DeltaPublications(tmp_path, ["day"])
    by_day.append([{"id": 1}], day="a")
    by_day.compact()
    by_day.publish()
    other, once = by_day.opened(), []
    put_certainly = table.put_certainly

    def refused(*arguments):
        raise StoreError("the disk is full")

    def overtaken(*arguments):
        if not once:
            once.append(1)
            other.append(T, pa.table({"id": [2]}), {"day": "b"})
            deltacompact.compact(T, delta_catalog_client=other, settings=LOCAL)
        return put_certainly(*arguments)

    by_day.append([{"id": 3}], day="a")
    with monkeypatch.context() as patch:
        patch.setattr(table, "put_certainly", refused)
        assert by_day.compact().publication.error is not None
        patch.setattr(table, "put_certainly", overtaken)
        by_day.publish()
    assert once
    assert (
        by_day.shown() == by_day.compacted() == [{"day": day, "id": id_} for day, id_ in [("a", 1), ("a", 3), ("b", 2)]]
    )


def test_runs_at_the_same_time_end_with_what_the_stream_has(orders):
    runs_at_the_same_time(orders, (1, 2, 3))
    orders.catalog = orders.opened()
    orders.compact()
    assert orders.shown() == orders.compacted()
    assert len(orders.shown()) == 20 + 1 - 1 + 9
