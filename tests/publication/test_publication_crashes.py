"""The switch of a stream and the commit of its publication are two commits: a process may die at every step of both.

Each change of the delta catalog's store, the Iceberg table's files and the Iceberg catalog counts. A run dies before
one of them, or after the last. Another process repairs, and PyIceberg reads what `catalog.read` has.
"""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from dying import Crash, Dying, changed
from iceberg_lake import Lake
from publications import LOCAL, Publications, T, configure, plain, runs_at_the_same_time
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

import deltacompact
from deltacompact.base.errors import Interrupted, OutcomeUnknownError
from deltacompact.iceberg.table import locations
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.storage.local import LocalStore

COUNTED = [
    (LocalStore, ("put", "put_if_absent", "delete")),
    (SqlCatalog, ("commit_table",)),
    (locations, ("put", "discard")),
]


@pytest.fixture
def orders(lake, tmp_path, monkeypatch):
    configure(lake, monkeypatch)
    return Publications(lake, tmp_path / "delta")


def lakes(tmp_path, monkeypatch):
    """As many lakes as are asked for, each with a table that has a delta to fold."""
    while True:
        name = f"lake{uuid.uuid4().hex[:8]}"
        (tmp_path / name).mkdir()
        lake = Lake(tmp_path / name, name)
        configure(lake, monkeypatch)
        published = Publications(lake, tmp_path / name / "delta")
        changed(published)
        yield published


@pytest.mark.slow
def test_a_run_that_dies_at_any_operation_is_repaired_by_the_next(tmp_path, monkeypatch):
    fresh = lakes(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        published = next(fresh)
        published.catalog = published.opened()
        whole = Dying(patch, COUNTED)
        published.compact()
    assert whole.operations.count("commit_table") == 1
    first = max(number for number, name in enumerate(whole.operations) if name == "put_if_absent")
    chosen = {*range(0, first, 3), *range(first, len(whole.operations))}  # all that comes after the switch
    for at, after in [death for death in whole.deaths() if death[0] in chosen]:
        published = next(fresh)
        published.catalog = published.opened()
        before = published.shown()
        with monkeypatch.context() as patch:
            dying = Dying(patch, COUNTED, at, after)
            with pytest.raises((Crash, Interrupted)):  # a commit that is broken off says so
                published.compact()
        published.catalog = published.opened()
        left = published.shown()
        assert left == before or left == read(published), (at, after, dying.operations[-1])
        vacuum(published.catalog, T, age_min_s=0, force=True)
        assert published.shown() == left
        assert published.compact().publication.error is None
        assert published.shown() == published.compacted(), (at, after, dying.operations[-1])
        assert published.catalog.publish(T).snapshot is None


def read(published):
    return plain([{k: v for k, v in row.items() if v is not None} for row in published.catalog.read(T).to_pylist()])


@pytest.mark.slow
def test_a_first_publication_that_dies_at_any_operation_is_repaired_by_the_next(tmp_path, monkeypatch, lake):
    configure(lake, monkeypatch)
    with monkeypatch.context() as patch:
        published = Publications(lake, tmp_path / "whole")
        published.append([{"id": 1}])
        published.compact()
        published.catalog = published.opened()
        whole = Dying(patch, COUNTED)
        published.publish()
    for at, after in whole.deaths():
        if lake.catalog.table_exists(f"ns.{T}"):
            lake.catalog.drop_table(f"ns.{T}")
        published = Publications(lake, tmp_path / f"delta-{at}-{after}")
        published.append([{"id": 1}])
        published.compact()
        published.catalog = published.opened()
        with monkeypatch.context() as patch:
            Dying(patch, COUNTED, at, after)
            with pytest.raises((Crash, Interrupted)):  # a commit that is broken off says so
                published.publish()
        published.catalog = published.opened()
        published.publish()
        assert published.shown() == published.compacted()


def test_a_commit_whose_answer_was_lost_is_recognised(orders, monkeypatch):
    changed(orders)
    commit_table = SqlCatalog.commit_table
    lost = []

    def unanswered(*arguments):
        commit_table(*arguments)
        lost.append(arguments)
        raise OSError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", unanswered)
        result = orders.compact()
    assert len(lost) == 1
    assert result.publication.error is None
    assert orders.shown() == orders.compacted()


def test_a_commit_of_which_nobody_knows_keeps_its_files_and_is_repaired(orders, monkeypatch):
    changed(orders)
    commit_table = SqlCatalog.commit_table
    with monkeypatch.context() as patch:

        def unanswered(*arguments):
            commit_table(*arguments)
            patch.setattr(SqlCatalog, "load_table", silent)
            raise OSError("connection reset")

        def silent(*_):
            raise OSError("no route to host")

        patch.setattr(SqlCatalog, "commit_table", unanswered)
        result = orders.compact()
    assert isinstance(result.publication.error, OutcomeUnknownError)
    assert not result.errors
    assert orders.shown() == orders.compacted()
    assert orders.catalog.publish(T).snapshot is None


def test_a_commit_that_is_refused_leaves_no_delete_file_behind(orders, monkeypatch):
    changed(orders)
    orders.lake.catalog.load_table(f"ns.{T}").transaction().set_properties(
        {"commit.retry.num-retries": "1"}
    ).commit_transaction()

    def refused(*_):
        raise CommitFailedException("somebody else")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", refused)
        assert orders.compact().publication.error is not None
    assert not list((orders.lake.folder / "warehouse").rglob("deltacompact-*.parquet"))
    orders.compact()
    assert orders.shown() == orders.compacted()


def test_no_run_shows_an_older_version_than_another_one_did(orders, monkeypatch):
    """A run reads the stream, another one compacts and publishes, the first one commits: it must not go back."""
    changed(orders)
    other = orders.opened()
    commit_table = SqlCatalog.commit_table
    once = []

    def overtaken(*arguments):
        if not once:
            once.append(1)
            deltacompact.compact(T, delta_catalog_client=other, settings=LOCAL)
            other.append(T, pa.table({"id": [77], "w": ["a column that the first run does not know"]}))
            deltacompact.compact(T, delta_catalog_client=other, settings=LOCAL)
        return commit_table(*arguments)

    orders.append([{"id": 50}])
    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", overtaken)
        orders.compact()
    assert 77 in [row["id"] for row in orders.shown()]
    orders.catalog = orders.opened()
    assert orders.shown() == orders.compacted()


@pytest.mark.slow
def test_runs_at_the_same_time_end_with_what_the_stream_has(orders):
    changed(orders)
    runs_at_the_same_time(orders, (1, 2, 3))
    orders.catalog = orders.opened()
    orders.compact()
    assert orders.shown() == orders.compacted()
    assert len(orders.shown()) == 20 + 1 - 1 + 9
