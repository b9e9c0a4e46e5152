"""Bookmarks: a consumer that dies is given the same batch again; what it needs is kept; of two, one is first."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_lake import Lake, local_path
from publications import configure
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import deltacompact
from deltacompact import ConflictError, DeltaStreamCatalog, InputError, NotFoundError, SchemaError, Settings, cli
from deltacompact.base.errors import OutcomeUnknownError
from deltacompact.catalog.mirror import mirror
from deltacompact.catalog.mirror_sources import source_of
from deltacompact.change_events import events
from deltacompact.change_feed import batch_keys, branch_bookmarks, stream_bookmarks
from deltacompact.delta_streams.appending.appender import Appender
from deltacompact.iceberg.table.pyiceberg_door import (
    CommitRefusedError,
    CommitThrottledError,
    CommitUnansweredError,
    IcebergTable,
)
from deltacompact.iceberg_modes.maintain.options import MaintainOptions
from deltacompact.iceberg_modes.maintain.retention import plan_expiry
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore

T = "ns.t"
LOCAL = Settings(executor="local", local_threads=1)


class Streams:
    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.catalog = deltacompact.open_catalog(folder / "streams")
        self.table = self.catalog.create_table(T, primary_keys=["id"])

    def append(self, *ids):
        self.table.append(pa.table({"id": list(ids)}))


class Branch:
    def __init__(self, folder):
        self.lake = Lake(folder, "bookmarked")
        self.lake.create(T, pa.schema([("id", pa.int64())]))
        self.catalog = deltacompact.open_catalog(self.lake.catalog)
        self.table = self.catalog.table(T)

    def append(self, *ids):
        self.lake.append(T, [{"id": number} for number in ids])


@pytest.fixture(params=[Streams, Branch])
def source(request, tmp_path):
    source = request.param(tmp_path)
    source.append(1, 2)
    return source


def batch(source, **asked):
    return sorted(row["id"] for row in source.table.changes(bookmark="mirror", **asked).read_all().to_pylist())


def test_the_same_batch_until_it_is_done(source):
    with pytest.raises(NotFoundError, match="has no bookmark 'mirror', or it was idle for more than 30 days"):
        batch(source)
    with pytest.raises(NotFoundError, match=r"has no bookmark 'mirror', or it was idle for more than 30 days$"):
        source.table.commit_bookmark("mirror")
    assert batch(source, from_="1999-01-01") == [1, 2]
    source.append(3)
    assert batch(source) == batch(source, from_="1999-01-01") == [1, 2], "it was not done"
    source.table.commit_bookmark("mirror")
    assert batch(source) == [3]
    assert source.table.commit_bookmark("mirror")
    assert not source.table.commit_bookmark("mirror"), "a consumer that died may not know that it was done"
    assert batch(source) == [] and not source.table.commit_bookmark("mirror")
    assert [bookmark.name for bookmark in source.table.bookmarks()] == ["mirror"]
    source.table.drop_bookmark("mirror")
    assert source.table.bookmarks() == []
    with pytest.raises(NotFoundError, match="has no bookmark 'mirror'"):
        source.table.drop_bookmark("mirror")


def test_a_bookmark_that_begins_where_nothing_is_new_is_remembered(source):
    """The next call without a beginning was refused: nothing had been put."""
    assert batch(source, from_=datetime.now(UTC)) == [] and not source.table.commit_bookmark("mirror")
    source.append(3)
    assert batch(source) == [3]


@pytest.mark.parametrize("kind", [Streams, Branch])
def test_a_consumer_that_is_older_than_the_first_row_may_commit_its_empty_batch(tmp_path, kind):
    """Of an Iceberg table the commit was refused: no tag can tell of a batch before the first snapshot."""
    source = kind(tmp_path)
    assert batch(source, from_="1999-01-01") == [] and not source.table.commit_bookmark("mirror")
    with pytest.raises(InputError, match="write up to 100 letters"):
        source.table.commit_bookmark("a/b")
    source.append(1)
    assert batch(source, from_="1999-01-01") == [1] and source.table.commit_bookmark("mirror")
    assert batch(source) == []


def test_the_feed_may_begin_where_a_consumer_is(source):
    batch(source, from_="1999-01-01")
    assert source.table.changes("mirror").read_all().num_rows == 2, "it has done nothing"
    source.table.commit_bookmark("mirror")
    source.append(3)
    assert source.table.changes("mirror").read_all()["id"].to_pylist() == [3] and batch(source) == [3]
    assert source.table.diff("mirror").inserts == 1
    with pytest.raises((InputError, NotFoundError), match="nobody"):
        source.table.changes("nobody")


def test_a_consumer_may_begin_where_another_one_is(source):
    """The help said so, and the answer was that no version begins with that name."""
    batch(source, from_="1999-01-01")
    source.append(3)
    assert source.table.changes("mirror", bookmark="early").read_all().num_rows == 3, "it has done nothing"
    source.table.commit_bookmark("mirror")
    assert source.table.changes("mirror", bookmark="late").read_all()["id"].to_pylist() == [3]
    with pytest.raises(NotFoundError, match=r"'mirrr' is no .* or bookmark"):
        source.table.changes("mirrr", bookmark="other")
    assert [bookmark.name for bookmark in source.table.bookmarks()] == ["early", "late", "mirror"]


def test_a_version_of_a_partitioned_table_is_refused_with_a_bookmark_and_without(tmp_path):
    """With a bookmark, it meant each partition's version of that number: these have nothing in common."""
    table = deltacompact.open_catalog(tmp_path).create_table("p", ["day"], ["id"])
    for day in ("mon", "tue"):
        table.append(pa.table({"id": [1]}), {"day": day})
    for ends in ({"from_": "0"}, {"from_": "1999-01-01", "to": "0"}):
        for bookmark in (None, "mirror"):
            with pytest.raises(InputError, match="version '0': each partition has its own versions, name a"):
                table.changes(bookmark=bookmark, **ends)
    assert table.bookmarks() == []


@pytest.mark.parametrize("name", ["2026-11-22", "2026-11-22-eod", "0", "1-a"])
def test_a_bookmark_comes_before_a_time_or_a_version_of_its_name(source, name):
    source.table.changes(bookmark=name, from_="1999-01-01").close()
    source.table.commit_bookmark(name)
    source.append(3)
    assert source.table.changes(name).read_all()["id"].to_pylist() == [3]


def test_that_nothing_came_since_a_bookmark_is_said_whatever_its_name(tmp_path, capsys):
    source = Streams(tmp_path)
    source.append(1)
    source.table.changes(bookmark="2026-11-22-eod", from_="1999-01-01").close()
    source.table.commit_bookmark("2026-11-22-eod")
    assert cli.run(["changes", str(tmp_path / "streams"), T, "--from", "2026-11-22-eod"]) == 0
    assert capsys.readouterr().err == "nothing changed\n"


def test_of_a_partitioned_table_it_begins_where_each_partition_is(tmp_path):
    table = deltacompact.open_catalog(tmp_path).create_table("p", ["day"], ["id"])
    table.append(pa.table({"id": [1]}), {"day": "mon"})
    table.changes(bookmark="mirror", from_="1999-01-01").read_all()
    table.commit_bookmark("mirror")
    table.append(pa.table({"id": [2]}), {"day": "mon"})
    table.append(pa.table({"id": [3]}), {"day": "tue"})
    assert sorted(table.changes("mirror").read_all()["id"].to_pylist()) == [2, 3]
    assert table.changes("mirror", partition={"day": "tue"}).read_all()["id"].to_pylist() == [3]


def test_a_batch_that_is_repeated_after_a_compaction_is_the_same(source):
    assert batch(source, from_="1999-01-01") == [1, 2]
    source.append(2, 3)
    mode = {"mode": "rewrite", "options": {"rewrite-all": True}} if isinstance(source, Branch) else {}
    source.table.compact(**mode, settings=LOCAL)
    assert batch(source) == [1, 2]


def test_a_batch_that_another_process_repeats_has_its_rows_in_the_same_order(tmp_path):
    """In the order of the table's files, and not in that of a set of strings, which each process draws anew."""
    source = Branch(tmp_path)
    for number in range(9):
        source.append(number)
    found = source.table.changes(bookmark="mirror", from_="1999-01-01").read_all()["id"].to_pylist()
    files = [pq.ParquetFile(local_path(entry.file.path)) for entry in source.lake.state(T).data]
    assert found == [file.read()["id"][0].as_py() for file in files]


@pytest.mark.parametrize("name", ["", "a/b", "x.next", "-", "a" * 101])
def test_names_that_not_every_store_can_hold_are_refused(source, name):
    with pytest.raises(InputError, match="bookmark"):
        source.table.changes(bookmark=name, from_="1999-01-01")


def test_vacuum_keeps_what_a_bookmark_needs(tmp_path):
    source = Streams(tmp_path)
    source.append(1, 2)
    source.table.compact(settings=LOCAL)
    assert batch(source, from_="1999-01-01") == [1, 2]
    for number in (3, 4):
        source.append(1, number)
        source.table.compact(settings=LOCAL)
    (done,) = source.table.vacuum(age_min_s=0, force=True)
    assert done.held and not done.waiting, "none is too young"
    assert batch(source) == [1, 2], "its end is kept"
    source.table.commit_bookmark("mirror")
    assert batch(source) == [3, 4], "and its beginning"
    source.table.commit_bookmark("mirror")
    assert source.table.vacuum(age_min_s=0, force=True, full=True)[0].deleted
    source.append(5)
    assert batch(source) == [5] and source.table.check()[0].problems == ()


class Aged:
    """A table of streams in a store whose clock tests set. Each day, a consumer is given a batch and has done it."""

    def __init__(self, partition_keys=()):
        self.now_s = 1.8e9
        self.store = MemoryStore(clock=lambda: self.now_s)
        self.catalog = DeltaStreamCatalog(self.store, clock=lambda: self.now_s)
        self.table = self.catalog.create_table("t", partition_keys, ["id"])

    def consumed(self, days, partition=None):
        for number in range(days):
            self.now_s += 86400
            self.table.append(pa.table({"id": [number]}), partition)
            self.table.changes(bookmark="mirror", from_="1999-01-01").read_all()
            self.table.commit_bookmark("mirror")

    def objects(self):
        return [stat.path.rpartition("/")[2] for stat in self.store.list("t/bookmarks/mirror/")]


def numbered(*numbers):
    return [f"{number:020}.json" for number in numbers]


def test_vacuum_deletes_bookmark_objects_that_were_replaced_three_days_ago():
    """A consumer that moves each minute would leave a million objects a year."""
    aged = Aged()
    aged.consumed(9)
    assert aged.objects() == numbered(*range(18))
    assert aged.table.vacuum(dry_run=True)[0].deleted and aged.objects() == numbered(*range(18))
    aged.table.vacuum()
    assert aged.objects() == numbered(*range(11, 18)), "the commit of day 6 was replaced on day 7, two days ago"
    aged.now_s += 86400 * 20
    aged.table.vacuum(full=True)
    assert aged.objects() == numbered(17)
    aged.table.append(pa.table({"id": [7, 99]}))
    assert sorted(aged.table.changes(bookmark="mirror").read_all()["id"].to_pylist()) == [99]


def test_a_dropped_bookmark_stays_dropped_after_a_vacuum_whatever_a_late_consumer_puts():
    aged = Aged()
    aged.consumed(2)
    late = aged.store.get(f"t/bookmarks/mirror/{numbered(3)[0]}")
    aged.table.drop_bookmark("mirror")
    aged.now_s += 86400 * 20
    aged.table.vacuum()
    assert aged.objects() == numbered(4), "it says that the bookmark was dropped"
    assert aged.store.put_if_absent(f"t/bookmarks/mirror/{numbered(3)[0]}", late)
    assert aged.table.bookmarks() == []
    aged.now_s += 86400 * 20
    aged.table.vacuum(full=True)
    assert aged.objects() == numbered(4)
    aged.consumed(1)
    assert aged.objects() == numbered(4, 5, 6)


def test_what_a_consumer_put_a_moment_ago_into_a_gap_stays_for_a_while():
    aged = Aged()
    aged.consumed(2)
    late = aged.store.get(f"t/bookmarks/mirror/{numbered(1)[0]}")
    aged.now_s += 86400 * 20
    aged.table.vacuum()
    aged.store.put(f"t/bookmarks/mirror/{numbered(1)[0]}", late)
    aged.table.vacuum(full=True)
    assert aged.objects() == numbered(1, 3)


def test_vacuum_leaves_other_programs_objects_among_bookmarks_alone():
    aged = Aged()
    aged.consumed(2)
    others = ["mirror/notes.txt", "mirror/00000000000000000000.json.bak", "mirror/3.json", "a b/" + numbered(1)[0]]
    others += ["a b/" + numbered(2)[0], "mirror/old/" + numbered(1)[0], "mirror/old/" + numbered(2)[0], numbered(1)[0]]
    for name in others:
        aged.store.put(f"t/bookmarks/{name}", b"theirs")
    aged.now_s += 86400 * 20
    gone = [stat.path for stat in aged.table.vacuum()[0].deleted if "/bookmarks/" in stat.path]
    assert gone == [f"t/bookmarks/mirror/{name}" for name in numbered(0, 1, 2)]
    assert all(aged.store.get(f"t/bookmarks/{name}") == b"theirs" for name in others)


def test_vacuum_deletes_no_bookmark_object_below_one_that_is_not_ours():
    aged = Aged()
    aged.consumed(2)
    document = json.loads(aged.store.get(f"t/bookmarks/mirror/{numbered(3)[0]}"))
    aged.store.put(f"t/bookmarks/mirror/{numbered(7)[0]}", json.dumps(document | {"table": "other"}).encode())
    aged.now_s += 86400 * 20
    with pytest.raises(InputError, match="is a bookmark of table 'other', not of 't'"):
        aged.table.vacuum()
    assert aged.objects() == numbered(0, 1, 2, 3, 7)


def test_partitions_that_are_vacuumed_side_by_side_tell_of_a_bookmark_object_once():
    aged = Aged(["day"])
    for day in ("mon", "tue"):
        aged.consumed(2, partition={"day": day})
    aged.now_s += 86400 * 20
    deleted = [stat.path for result in aged.table.vacuum() for stat in result.deleted]
    assert [path for path in deleted if "/bookmarks/" in path] == [
        f"t/bookmarks/mirror/{name}" for name in numbered(*range(7))
    ]


def test_commits_whose_version_was_vacuumed_are_told_from_the_net_change(tmp_path):
    """The bookmark keeps the ends of its batch. What was between them cannot be divided into commits any more."""
    source = Streams(tmp_path)
    source.append(1)
    source.table.compact(settings=LOCAL)
    batch(source, from_="1999-01-01")
    source.table.commit_bookmark("mirror")
    for number in (2, 3):
        source.append(number)
        source.table.compact(settings=LOCAL)
    assert batch(source, per_commit=True) == [2, 3]
    source.table.vacuum(age_min_s=0, force=True)
    with pytest.raises(InputError, match=r"version 1-.*, whose commits are asked for, .* Ask for the net change"):
        batch(source, per_commit=True)
    assert batch(source) == [2, 3]


def test_an_idle_bookmark_keeps_nothing_and_says_so(tmp_path):
    source = Streams(tmp_path)
    source.append(1)
    assert batch(source, from_="1999-01-01") == [1]
    source.table.commit_bookmark("mirror")
    late = DeltaStreamCatalog(LocalStore(tmp_path / "streams"), clock=lambda: source.catalog.clock() + 31 * 86400)
    with pytest.raises(NotFoundError, match="idle for more than 30 days"):
        late.table(T).changes(bookmark="mirror")


def versions(aged, count):
    """`count` versions with one row more each, of which the last is left."""
    for number in range(count):
        aged.now_s += 1
        aged.table.append(pa.table({"id": [number]}))
        aged.table.compact(settings=LOCAL)
    aged.now_s += 5 * 86400
    aged.table.vacuum()


@pytest.mark.parametrize("ends", [{"from_": "1"}, {"from_": "1999-01-01", "to": "1"}])
def test_a_batch_whose_files_were_vacuumed_makes_no_bookmark(ends):
    """The bookmark named the version, each try renewed it, and every vacuum failed from then on."""
    aged = Aged()
    versions(aged, 4)
    with pytest.raises(NotFoundError, match="cannot be read any more"):
        aged.table.changes(bookmark="mirror", **ends)
    assert aged.table.bookmarks() == []
    versions(aged, 1)


def test_an_end_that_was_vacuumed_is_refused_and_the_next_batch_given():
    aged = Aged()
    versions(aged, 3)
    assert aged.table.changes("1999-01-01", bookmark="mirror").read_all().num_rows == 3
    aged.table.commit_bookmark("mirror")
    with pytest.raises(NotFoundError, match="cannot be read any more"):
        aged.table.changes(to="1", bookmark="mirror")
    aged.table.append(pa.table({"id": [7]}))
    assert aged.table.changes(bookmark="mirror").read_all()["id"].to_pylist() == [7]


def test_vacuum_goes_on_where_a_bookmark_begins_at_a_version_of_which_the_next_one_has_the_rows():
    """The files of version 2 are gone, but its rows are those with which version 3 begins."""
    aged = Aged()
    versions(aged, 3)
    assert aged.table.changes("2", bookmark="mirror").read_all().num_rows == 0
    versions(aged, 2)
    aged.table.vacuum(full=True)
    aged.table.append(pa.table({"id": [7]}))
    assert aged.table.commit_bookmark("mirror")
    assert aged.table.changes(bookmark="mirror").read_all()["id"].to_pylist() == [7]


def test_an_open_batch_that_was_idle_is_refused_as_a_bookmark_is():
    aged = Aged()
    versions(aged, 1)
    assert aged.table.changes("1999-01-01", bookmark="mirror").read_all().num_rows == 1
    versions(aged, 2)
    aged.now_s += 31 * 86400
    with pytest.raises(NotFoundError, match="was idle for more than 30 days: drop it"):
        aged.table.changes(bookmark="mirror")


def test_a_mirror_whose_bookmark_was_idle_does_not_begin_anew_unasked(tmp_path):
    """With --from on its command line it did, and kept the rows that went meanwhile for ever."""
    source, target = Streams(tmp_path), mirror_of(tmp_path)
    source.append(1, 2)
    mirror(source.table, target, "mirror", from_="1970-01-01")
    source.table.append(pa.table({"id": [1]}), operation="delete")
    late = DeltaStreamCatalog(LocalStore(tmp_path / "streams"), clock=lambda: source.catalog.clock() + 31 * 86400)
    with pytest.raises(NotFoundError, match=r"was idle for more than 30 days: drop it, .* a mirror must be empty then"):
        mirror(late.table(T), target, "mirror", from_="1970-01-01")
    late.table(T).drop_bookmark("mirror")
    anew = deltacompact.open_catalog(tmp_path / "mirror").create_table("anew", primary_keys=["id"])
    assert mirror(late.table(T), anew, "mirror", from_="1970-01-01") == 1
    assert anew.read()["id"].to_pylist() == late.table(T).read()["id"].to_pylist() == [2]


def test_expiry_keeps_the_snapshots_of_a_bookmark(tmp_path):
    source = Branch(tmp_path)
    source.append(0)
    source.append(1)
    assert batch(source, from_="1999-01-01") == [0, 1]
    source.table.commit_bookmark("mirror")
    for number in (2, 3, 4):
        source.append(number)
    source.table.maintain(expire_snapshots=True, options={"older-than": "0s"})
    assert len(source.table.history()) == 4
    assert batch(source) == [2, 3, 4]


def test_a_time_whose_snapshot_has_expired_is_no_empty_table(tmp_path):
    """Its rows would come as inserts, and rows that went since would not come at all."""
    source = Branch(tmp_path)
    source.append(1)
    time.sleep(0.002)
    then = datetime.now(UTC)
    time.sleep(0.002)
    source.lake.catalog.load_table(T).delete("id = 1")
    source.append(2)
    feed = source.table.changes(from_=then).read_all()
    assert sorted(zip(feed["id"].to_pylist(), feed["_change_type"].to_pylist(), strict=True)) == [
        (1, "delete"),
        (2, "insert"),
    ]
    source.table.maintain(expire_snapshots=True, options={"older-than": "0s"})
    with pytest.raises(NotFoundError, match=r"has no snapshot of .* \(the oldest that is left: "):
        source.table.changes(from_=then)
    with pytest.raises(InputError, match="ask for the net change"):
        source.table.changes(per_commit=True).read_all()
    assert batch(source, from_="1970-01-01") == [2], "a new consumer begins with all rows"


@pytest.mark.parametrize("first", [True, False])
def test_a_consumer_that_lags_still_sees_each_commit_and_no_rewritten_file(tmp_path, first):
    """Expiry keeps the snapshots that its feed goes through: without them a `replace` looks like new rows."""
    source = Branch(tmp_path)
    source.append(1)
    assert batch(source, from_="1999-01-01") == [1]
    if not first:
        source.table.commit_bookmark("mirror")
    for number in (2, 3):
        source.append(number)
    source.table.compact("rewrite", {"rewrite-all": True}, settings=LOCAL)
    rewritten = [entry.file.path for entry in source.lake.state(T).data]
    source.append(4)
    said = str(source.table.maintain(expire_snapshots=True, options={"older-than": "0s"}))
    assert "snapshots: none of 5 snapshots: each is younger than 0 hours, or kept by a branch, tag or bookmark" in said
    assert batch(source, per_commit=True) == ([1] if first else [2, 3, 4])
    if not first:
        for path in rewritten:
            os.remove(local_path(path))
        assert batch(source) == [2, 3, 4]
    source.table.drop_bookmark("mirror")
    assert (
        len(source.table.maintain(expire_snapshots=True, options={"older-than": "0s"}).expire_snapshots.snapshots) == 4
    )


def test_a_batch_whose_beginning_is_gone_is_refused(tmp_path):
    """As everything up to `next`, it would lack the deletes: a mirror would keep their rows for ever."""
    source = Branch(tmp_path)
    source.append(1, 2)
    assert batch(source, from_="1999-01-01") == [1, 2]
    source.table.commit_bookmark("mirror")
    source.lake.delete_by_key(T, {"id": [1]})
    assert batch(source) == [1]
    source.lake.catalog.load_table(T).manage_snapshots().remove_tag("bookmark.mirror").commit()
    told = (
        "the tag 'bookmark.mirror' is gone, where .* 'mirror' begins: drop the bookmark, .* a mirror must be empty then"
    )
    for ask in (
        lambda: batch(source),
        lambda: source.table.changes("mirror"),
        lambda: batch(source, from_="1999-01-01"),
    ):
        with pytest.raises(InputError, match=told):
            ask()
    assert [bookmark.name for bookmark in source.table.bookmarks()] == ["mirror"]
    source.table.drop_bookmark("mirror")
    assert batch(source, from_="1999-01-01") == [2]


def test_of_two_consumers_one_is_first(tmp_path):
    source = Branch(tmp_path)
    source.append(1)
    batch(source, from_="1999-01-01")
    both = [IcebergTable.load(source.lake.catalog, T) for _ in range(2)]
    branch_bookmarks.committed(both[0], "mirror")
    with pytest.raises(ConflictError):
        branch_bookmarks.committed(both[1], "mirror")


def test_a_bookmark_of_another_table_is_refused(tmp_path):
    source = Streams(tmp_path)
    source.append(1)
    batch(source, from_="1999-01-01")
    (path,) = [stat.path for stat in source.catalog.store.list("ns.t/bookmarks/")]
    document = json.loads(source.catalog.store.get(path)) | {"table": "other"}
    source.catalog.store.put(path, json.dumps(document).encode())
    with pytest.raises(InputError, match="is a bookmark of table 'other'"):
        batch(source)


def test_a_bookmark_of_a_dropped_table_skips_no_row_of_the_next_one_of_its_name(tmp_path):
    """A consumer of the dropped table puts its object late. Version 0 with one entry is there in both tables."""
    source = Streams(tmp_path)
    source.append(1)
    batch(source, from_="1999-01-01")
    source.table.commit_bookmark("mirror")
    late = {stat.path: source.catalog.store.get(stat.path) for stat in source.catalog.store.list("ns.t/bookmarks/")}
    source.table.drop()
    again = Streams(tmp_path)
    again.append(2)
    for path, document in late.items():
        again.catalog.store.put(path, document)
    assert again.table.bookmarks() == []
    with pytest.raises(NotFoundError, match="has no bookmark 'mirror'"):
        batch(again)
    assert batch(again, from_="1999-01-01") == [2]


@pytest.mark.parametrize("begun", [0, 2, 7])
def test_a_mistyped_bookmark_is_told_from_a_version_and_the_others_are_named(source, begun):
    source.append(1)
    for number in range(begun):
        source.table.changes(from_="1970-01-01", bookmark=f"mirror{number}").close()
    names = ", ".join(f"mirror{number}" for number in range(min(begun, 5)))
    known = f"bookmarks: {names}{', and 2 more' * (begun > 5)}" if begun else "it has no bookmarks"
    for text in ("mirrr", "no name"):
        with pytest.raises(NotFoundError, match=rf"'{text}' is no .*, time or bookmark \({known}\)"):
            source.table.changes(from_=text)


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    for source in (Streams(tmp_path / "s"), Branch(tmp_path / "b")):
        source.append(1, 2)
        place = str(tmp_path / "s" / "streams")
        if isinstance(source, Branch):
            configure(source.lake, monkeypatch)
            place = f"iceberg://{source.lake.name}"
        words = ["changes", place, T, "--bookmark", "mirror"]
        assert cli.run([*words, "--from", "1999-01-01"]) == 0 and len(capsys.readouterr().out.splitlines()) == 2
        assert cli.run(["bookmarks", "--json", "list", place, T]) == 0
        assert [found["name"] for found in json.loads(capsys.readouterr().out)] == ["mirror"]
        for listing in (["bookmarks", place, T], ["bookmarks", "list", place, T]):
            assert cli.run(listing) == 0 and capsys.readouterr().out.startswith("mirror: done nothing; next ")
        assert cli.run([*words, "--commit"]) == 0
        assert capsys.readouterr().out == "the batch of bookmark mirror is done\n"
        assert cli.run(words) == 0 and capsys.readouterr() == ("", "nothing changed\n")
        assert cli.run([*words, "--commit"]) == 0
        assert capsys.readouterr().out == "bookmark mirror has no batch to commit\n"
        assert cli.run(["changes", place, T, "--commit"]) == 2
        assert "--commit is for the batch of a --bookmark" in capsys.readouterr().err
        assert cli.run(["bookmarks", "drop", place, T, "mirror"]) == 0
        assert capsys.readouterr().out == "bookmark mirror is forgotten\n"
        for wrong in (["bookmarks", "drop", place, T], ["bookmarks", place, T, "mirror"]):
            assert cli.run(wrong) == 2 and "say 'bookmarks list CATALOG TABLE' or" in capsys.readouterr().err


def mirror_of(tmp_path):
    return deltacompact.open_catalog(tmp_path / "mirror").create_table("m", primary_keys=["id"])


def test_a_mirror_follows_and_each_change_is_in_it_once(source, tmp_path, monkeypatch):
    target = mirror_of(tmp_path)
    assert mirror(source.table, target, "mirror", from_="1999-01-01") == 2
    source.append(3)
    if isinstance(source, Branch):
        source.lake.delete_by_key(T, {"id": [1]})
    else:
        source.table.append(pa.table({"id": [1]}), operation="delete")

    def dies(name):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(source_of(source.table)), "commit", lambda self, name, *_: dies(name))
        with pytest.raises(KeyboardInterrupt):
            mirror(source.table, target, "mirror")
    source.append(4)
    assert mirror(source.table, target, "mirror") == 2, "the same batch, which is known"
    assert sorted(target.read()["id"].to_pylist()) == [2, 3]
    assert mirror(source.table, target, "mirror") == 1 and mirror(source.table, target, "mirror") == 0
    assert sorted(target.read()["id"].to_pylist()) == sorted(source.table.read()["id"].to_pylist()) == [2, 3, 4]
    assert sum(len(made.tokens) for made in target.history()) == 3


def test_a_mirror_follows_a_branch_that_goes_back_and_forth(tmp_path):
    source, target = Branch(tmp_path), mirror_of(tmp_path)
    heads = []
    for number in (1, 2):
        source.append(number)
        heads.append(source.lake.state(T).snapshot_id)
        mirror(source.table, target, "mirror", from_="1999-01-01")
    for head in (heads[0], heads[1], heads[0]):
        source.lake.catalog.load_table(T).manage_snapshots().set_current_snapshot(head).commit()
        assert mirror(source.table, target, "mirror") == 1
        assert sorted(target.read()["id"].to_pylist()) == sorted(source.table.read()["id"].to_pylist())


def test_a_batch_may_go_back_behind_versions_and_first_commits(tmp_path):
    """A ValueError met an older version, again with each call. A partition without a commit then kept its rows: the
    next batch inserted them again, without those that were deleted meanwhile.
    """
    table = deltacompact.open_catalog(tmp_path).create_table("p", ["day"], ["id"])
    table.append(pa.table({"id": [1]}), {"day": "mon"})
    table.compact(settings=LOCAL)
    table.append(pa.table({"id": [2]}), {"day": "mon"})
    time.sleep(0.01)
    moment = datetime.now(UTC)
    for number in (3, 4):
        table.compact(settings=LOCAL)
        table.append(pa.table({"id": [number]}), {"day": "mon"})
    table.append(pa.table({"id": [5, 6]}), {"day": "tue"})
    target = mirror_of(tmp_path / "back")
    assert mirror(table, target, "mirror", from_="1999-01-01") == 6
    with pytest.raises(InputError, match="ask for the net change"):
        table.changes(bookmark="mirror", to=moment, per_commit=True).read_all()
    assert mirror(table, target, "mirror") == 4 and target.read()["id"].to_pylist() == [1, 2]
    table.append(pa.table({"id": [5]}), {"day": "tue"}, operation="delete")
    assert mirror(table, target, "mirror") == 3
    assert sorted(target.read()["id"].to_pylist()) == sorted(table.read()["id"].to_pylist()) == [1, 2, 3, 4, 6]


def test_tables_of_one_name_in_two_catalogs_have_one_mirror(tmp_path, monkeypatch):
    """Given in one millisecond, the batch of the second was taken for that of the first, and never came."""
    target = mirror_of(tmp_path)
    for number in (1, 2):
        source = Streams(tmp_path / str(number))
        source.append(number)
        monkeypatch.setattr(source.catalog, "clock", lambda: 1.8e9)
        mirror(source.table, target, "mirror", from_="1999-01-01")
    assert target.read()["id"].to_pylist() == [1, 2]


def test_a_row_that_moves_to_another_partition_of_the_mirror_leaves_the_first(tmp_path):
    lake = Lake(tmp_path, "moving")
    lake.create(T, pa.schema([("id", pa.int64()), ("day", pa.string())]))
    source = deltacompact.open_catalog(lake.catalog).table(T)
    target = deltacompact.open_catalog(tmp_path / "mirror").create_table("m", ["day"], ["id"])
    lake.append(T, [{"id": 1, "day": "mon"}, {"id": 2, "day": "mon"}])
    mirror(source, target, "mirror", from_="1999-01-01")
    lake.delete_by_key(T, {"id": [1]})
    lake.append(T, [{"id": 1, "day": "tue"}])
    mirror(source, target, "mirror")
    assert sorted((row["id"], row["day"]) for row in target.read().to_pylist()) == [(1, "tue"), (2, "mon")]


def test_of_two_mirrors_none_takes_the_others_batch_for_its_own(source, tmp_path, monkeypatch):
    """Another run ends the batch between the reading and the bookmark, and dies with the next one."""
    target = mirror_of(tmp_path)
    changes, once = type(source.table).changes, iter([True])

    def overtaken(table, *ends, **asked):
        reader = changes(table, *ends, **asked)
        if next(once, None):
            mirror(source.table, target, "mirror")
            source.append(3)
            changes(table, bookmark="mirror")
        return reader

    monkeypatch.setattr(type(source.table), "changes", overtaken)
    assert mirror(source.table, target, "mirror", from_="1999-01-01") == 1
    assert sorted(target.read()["id"].to_pylist()) == [1, 2, 3]


def test_a_bookmark_is_moved_for_the_batch_that_was_done(source):
    batch(source, from_="1999-01-01")
    (first,) = source.table.bookmarks()
    source.table.commit_bookmark("mirror", first)
    source.append(3)
    batch(source)
    with pytest.raises(ConflictError, match="another consumer has moved bookmark 'mirror'"):
        source.table.commit_bookmark("mirror", first)
    assert batch(source) == [3]


@pytest.mark.parametrize("kind", [Streams, Branch])
def test_a_consumer_of_a_dropped_bookmark_does_not_move_the_next_one_of_its_name(tmp_path, monkeypatch, kind):
    """Else the next one's consumer is never given the first batch."""
    source, once = kind(tmp_path), iter([True])
    source.append(1, 2)
    batch(source, from_="1999-01-01")
    place, name = (stream_bookmarks, "put_certainly") if kind is Streams else (IcebergTable, "tag")
    move = getattr(place, name)

    def overtaken(*arguments, **options):
        if next(once, None):
            source.table.drop_bookmark("mirror")
            batch(source, from_="1999-01-01")
        return move(*arguments, **options)

    monkeypatch.setattr(place, name, overtaken)
    with pytest.raises(ConflictError):
        source.table.commit_bookmark("mirror")
    assert batch(source) == [1, 2]
    source.table.commit_bookmark("mirror")


@pytest.mark.parametrize("move", ["commit_bookmark", "drop_bookmark"])
def test_a_commit_of_a_writer_holds_up_no_move_of_a_bookmark_and_an_expiry_of_its_tag_is_told(
    tmp_path, monkeypatch, move
):
    source, tag = Branch(tmp_path), IcebergTable.tag
    source.append(1)

    def moved(meanwhile):
        batch(source, from_="1999-01-01")

        def overtaken(*arguments, **options):
            monkeypatch.setattr(IcebergTable, "tag", tag)
            meanwhile()
            return tag(*arguments, **options)

        monkeypatch.setattr(IcebergTable, "tag", overtaken)
        getattr(source.table, move)("mirror")

    moved(lambda: source.append(2))
    assert batch(source, from_="1999-01-01") == ([2] if move == "commit_bookmark" else [1, 2])
    (given,) = (name for name in source.lake.state(T).metadata.refs if name.startswith("bookmark.mirror."))

    def expire():
        source.lake.catalog.load_table(T).manage_snapshots().remove_tag(given).commit()

    if move == "drop_bookmark":
        moved(expire)  # it is gone, as was asked
    else:
        with pytest.raises(ConflictError, match="another consumer has moved bookmark 'mirror'"):
            moved(expire)


@pytest.mark.parametrize(
    "answer", [ConflictError("sent twice"), CommitRefusedError("sent twice"), CommitUnansweredError("504")]
)
def test_a_move_of_a_bookmark_whose_answer_is_lost_is_known_again(tmp_path, monkeypatch, answer):
    source, tag, lost = Branch(tmp_path), IcebergTable.tag, []
    source.append(1)

    def loses(*arguments, **options):
        done = tag(*arguments, **options)
        lost.append(answer)
        if len(lost) % 2:
            raise answer
        return done

    monkeypatch.setattr(IcebergTable, "tag", loses)
    assert batch(source, from_="1999-01-01") == [1]
    lost.clear()
    assert source.table.commit_bookmark("mirror"), "it was this consumer who moved it"
    source.append(2)
    lost.clear()
    assert batch(source) == [2]
    lost.clear()
    source.table.drop_bookmark("mirror")
    assert source.table.bookmarks() == []


def test_a_catalog_that_does_not_move_a_bookmark_is_told(tmp_path, monkeypatch):
    """One that is asked too often is asked again after a pause, twice as long each time."""
    source, waits = Branch(tmp_path), []
    source.append(1)
    batch(source, from_="1999-01-01")

    def refuses(error):
        def refused(*arguments, **options):
            raise error

        monkeypatch.setattr(IcebergTable, "tag", refused)

    monkeypatch.setattr(branch_bookmarks.time, "sleep", waits.append)
    refuses(CommitThrottledError("TooManyRequests"))
    for move in (
        lambda: source.table.commit_bookmark("mirror"),
        lambda: source.table.drop_bookmark("mirror"),
        lambda: source.table.changes(bookmark="other", from_="1999-01-01"),
    ):
        waits.clear()
        with pytest.raises(ConflictError, match=r"could not be moved, again and again \(TooManyRequests\)"):
            move()
        assert len(waits) == 19 and waits[0] <= 0.1 and waits[-1] > 2
    refuses(CommitUnansweredError("504"))
    with pytest.raises(OutcomeUnknownError, match=r"whether bookmark 'mirror' was moved: run it again \(504\)"):
        source.table.commit_bookmark("mirror")


def test_a_bookmark_that_is_moved_meanwhile_is_not_dropped(tmp_path, monkeypatch):
    source = Streams(tmp_path)
    source.append(1, 2)
    batch(source, from_="1999-01-01")
    monkeypatch.setattr(stream_bookmarks, "put_certainly", lambda *arguments: False)
    with pytest.raises(ConflictError, match="a consumer moved bookmark 'mirror' meanwhile"):
        source.table.drop_bookmark("mirror")


def test_a_consumer_that_finds_nothing_new_is_not_idle(source, monkeypatch):
    """A tag of a branch stays by its own age, and not by that of its snapshot."""
    batch(source, from_="1999-01-01")
    source.table.commit_bookmark("mirror")
    now_s = time.time()
    for days in (20, 40, 60):
        at_s = now_s + days * 86_400
        if isinstance(source, Branch):
            monkeypatch.setattr(branch_bookmarks.time, "time", lambda at_s=at_s: at_s)
            metadata = source.lake.state(T).metadata
            assert not plan_expiry(metadata, MaintainOptions(), int(at_s * 1000)).refs
        else:
            monkeypatch.setattr(source.catalog, "clock", lambda at_s=at_s: at_s)
        assert batch(source) == []


def test_a_batch_that_fails_each_time_keeps_its_files_of_a_stream():
    """After 30 days vacuum took them, although the consumer asked for the batch each day."""
    aged = Aged()
    aged.consumed(1)
    aged.table.append(pa.table({"id": [7]}))
    for number in range(8, 12):
        assert aged.table.changes(bookmark="mirror").read_all()["id"].to_pylist() == [7]
        aged.table.append(pa.table({"id": [number]}))
        aged.table.compact(settings=LOCAL)
        aged.now_s += 20 * 86400
        aged.table.vacuum()
    assert aged.table.changes(bookmark="mirror").read_all()["id"].to_pylist() == [7]
    assert aged.table.commit_bookmark("mirror")
    assert aged.table.changes(bookmark="mirror").read_all()["id"].to_pylist() == [8, 9, 10, 11]


def test_a_batch_that_fails_each_time_keeps_its_tags_of_a_branch(tmp_path, monkeypatch):
    source, now_s = Branch(tmp_path), time.time()
    source.append(1)
    assert batch(source, from_="1999-01-01") == [1]
    for days in (20, 40, 60):
        monkeypatch.setattr(branch_bookmarks.time, "time", lambda at_s=now_s + days * 86_400: at_s)
        metadata = source.lake.state(T).metadata
        assert not plan_expiry(metadata, MaintainOptions(), int((now_s + days * 86_400) * 1000)).refs
        assert batch(source) == [1]
    assert source.table.commit_bookmark("mirror") and batch(source) == []


def iceberg_mirror(lake):
    if lake.catalog.table_exists("ns.m"):
        lake.catalog.drop_table("ns.m")
    lake.create("ns.m", Schema(NestedField(1, "id", LongType(), required=True), identifier_field_ids=[1]), 2)
    return deltacompact.open_catalog(lake.catalog).table("ns.m")


@pytest.mark.parametrize("into", ["stream", "branch"])
def test_a_mirror_that_was_created_again_is_told_that_it_lacks_rows(source, tmp_path, into):
    """The bookmark went on, and the new mirror lacked all rows of the dropped one."""
    (tmp_path / "lake").mkdir()
    lake = Lake(tmp_path / "lake", "mirrors")

    def created():
        return mirror_of(tmp_path) if into == "stream" else iceberg_mirror(lake)

    target = created()
    assert mirror(source.table, target, "b", from_="1999-01-01") == 2
    source.append(3)
    assert mirror(source.table, target, "b") == 1 and mirror(source.table, target, "b") == 0
    if into == "stream":
        target.drop()
    again = created()
    for later in ((), (4,)):
        source.append(*later)
        with pytest.raises(InputError, match="was dropped and created again"):
            mirror(source.table, again, "b")
        assert again.read().num_rows == 0
    source.table.drop_bookmark("b")
    assert mirror(source.table, again, "b", from_="1970-01-01") == 4
    source.append(5)
    assert mirror(source.table, again, "b") == 1 and sorted(again.read()["id"].to_pylist()) == [1, 2, 3, 4, 5]


def test_one_bookmark_does_not_divide_the_changes_among_two_mirrors(source, tmp_path):
    first, second = mirror_of(tmp_path / "first"), mirror_of(tmp_path / "second")
    mirror(source.table, first, "b", from_="1999-01-01")
    source.append(3)
    batch_of_first = sorted(source.table.changes(bookmark="b").read_all()["id"].to_pylist())
    with pytest.raises(InputError, match="they go into another table"):
        mirror(source.table, second, "b")
    assert batch_of_first == [3] and mirror(source.table, first, "b") == 1
    assert mirror(source.table, second, "c", from_="1999-01-01") == 3
    assert sorted(second.read()["id"].to_pylist()) == sorted(first.read()["id"].to_pylist()) == [1, 2, 3]


def test_an_idle_mirror_stays_known_when_its_bookmark_is_signed_again(source, tmp_path, monkeypatch):
    target, now_s = mirror_of(tmp_path), time.time()
    mirror(source.table, target, "b", from_="1999-01-01")
    monkeypatch.setattr(time, "time", lambda: now_s + 2 * 86400)
    if isinstance(source, Streams):
        monkeypatch.setattr(source.catalog, "clock", lambda: now_s + 2 * 86400)
    assert mirror(source.table, target, "b") == 0
    (known,) = source.table.bookmarks()
    assert known.time_ms > (now_s + 86400) * 1000 and known.into is not None


def test_a_mirror_needs_a_key_that_the_source_has(source, tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "mirror")
    with pytest.raises(InputError, match="declares no primary key: create another with --primary-key"):
        mirror(source.table, catalog.create_table("none"), "mirror", from_="1999-01-01")
    with pytest.raises(InputError, match="has no column 'other' for a key"):
        mirror(source.table, catalog.create_table("o", primary_keys=["other"]), "mirror", from_="1999-01-01")


@pytest.mark.parametrize("of", [int, str])
def test_sort_keys_of_a_mirror_hide_no_row_of_its_source(tmp_path, of):
    """After a delete without sort values, or a rollback, a row of the source has a smaller one than the mirror's."""
    catalog = deltacompact.open_catalog(tmp_path)
    source, copy = (catalog.create_table(name, [], ["id"], ["at"]) for name in ("source", "copy"))
    first = pa.table({"id": [1, 2], "at": [of(5), of(5)]})
    source.append(first)
    assert mirror(source, copy, "m", from_="1999-01-01") == 2
    source.compact()
    smaller = {"id": [1, 2], "at": [of(3), of(9)]}
    for rows, operation in (({"id": [1]}, "delete"), (smaller, "upsert"), ({"id": [2]}, "delete")):
        source.append(pa.table(rows), operation=operation)
        mirror(source, copy, "m")
        assert copy.read().sort_by("id").equals(source.read().sort_by("id"))
    source.rollback("0")
    mirror(source, copy, "m")
    assert copy.read().sort_by("id").equals(first)


@pytest.mark.parametrize("asked", [{}, {"columns": ["id"], "where": "id > 0"}])
def test_a_mirror_of_a_source_without_rows_waits_for_them(tmp_path, asked):
    """A scheduled mirror does not fail because it is older than the first row, whose columns nobody knows."""
    catalog = deltacompact.open_catalog(tmp_path)
    source, copy = (catalog.create_table(name, primary_keys=["id"]) for name in ("source", "copy"))
    assert mirror(source, copy, "m", from_="1999-01-01", **asked) == 0
    source.compact()
    source.append(pa.table({"id": pa.array([], pa.int64())}), operation="delete")
    assert mirror(source, copy, "m", from_="1999-01-01", **asked) == 0
    source.append(pa.table({"id": [1]}))
    assert mirror(source, copy, "m", **asked) == 1
    assert copy.read().to_pylist() == [{"id": 1}]


def test_a_partition_whose_files_do_not_say_its_value_blocks_no_mirror(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path)
    source, copy = (catalog.create_table(name, ["day"], ["id"]) for name in ("source", "copy"))
    source.append(pa.table({"id": [1], "day": ["x"]}), {"day": "x"})
    source.append(pa.table({"id": [1]}), {"day": "y"})
    assert mirror(source, copy, "m", from_="1999-01-01") == 2
    assert sorted(copy.read()["day"].to_pylist()) == ["x", "y"]


def test_a_feed_and_a_mirror_know_partitions_of_which_no_file_tells(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path)
    source, copy = (catalog.create_table(name, ["day"], ["id"]) for name in ("source", "copy"))
    for day in ("x", "y", None):
        source.append(pa.table({"id": [1, 2]}), {"day": day})
    feed = source.changes("1999-01-01", columns=["id", "day"], where="day = 'y'").read_all()
    assert feed.select(["id", "day"]).to_pylist() == [{"id": 1, "day": "y"}, {"id": 2, "day": "y"}]
    assert mirror(source, copy, "m", from_="1999-01-01") == 6
    source.append(pa.table({"id": [1]}), {"day": "y"}, "delete")
    source.compact()
    assert mirror(source, copy, "m") == 1
    rows = source.read(columns=["id", "day"]).to_pylist()
    assert sorted(map(repr, copy.read(columns=["id", "day"]).to_pylist())) == sorted(map(repr, rows))
    assert len(rows) == 5


@pytest.mark.parametrize("type_", [pa.string(), pa.int64()])
def test_a_mirror_has_the_partition_of_null_too(tmp_path, type_):
    catalog = deltacompact.open_catalog(tmp_path)
    source, copy = (catalog.create_table(name, ["day"], ["id"]) for name in ("source", "copy"))
    for day in ("1", None):
        source.append(pa.table({"id": [1, 2], "day": pa.array([day, day]).cast(type_)}), {"day": day})
    assert mirror(source, copy, "m", from_="1999-01-01") == 4
    source.append(pa.table({"id": [1]}), {"day": None}, "delete")
    assert mirror(source, copy, "m") == 1
    assert copy.partition_keys == ("day",) and copy.read({"day": None})["id"].to_pylist() == [2]
    assert sorted(map(repr, copy.read().to_pylist())) == sorted(map(repr, source.read().to_pylist()))


UNHEARD = [["--out", "o.csv"], ["--key", "id"], ["--before"], ["--per-commit"]]
ALSO_BY_A_COMMIT = [["--from", "1"], ["--to", "2"], ["--where", "id > 1"], ["--columns", "id"], ["--partition", "d=1"]]


@pytest.mark.parametrize("unheard", [*UNHEARD, *ALSO_BY_A_COMMIT], ids=" ".join)
def test_options_that_a_mirror_and_a_commit_would_not_hear_are_refused(tmp_path, capsys, unheard):
    """changes --into --commit said that the batch was done: its rows never came into the mirror."""
    source, target = Streams(tmp_path), mirror_of(tmp_path)
    source.append(1)
    words = ["changes", source.catalog.uri, T, "--bookmark", "b"]
    into, begin = ["--into", str(tmp_path / "mirror"), "m"], ["--from", "1970-01-01"]
    assert cli.run([*words, *begin]) == 0
    capsys.readouterr()
    for refused, other in (
        ([*into, "--commit"], "--into"),
        *([([*into, *unheard], unheard[0])] if unheard in UNHEARD else []),
        (["--commit", *unheard], unheard[0]),
    ):
        assert cli.run([*words, *refused]) == 2 and f" excludes {other}: " in capsys.readouterr().err
    assert cli.run([*words, *into, "--net", *begin]) == 0 and target.read()["id"].to_pylist() == [1]


def test_a_mirror_on_the_command_line(tmp_path, capsys):
    source = Streams(tmp_path / "s")
    source.append(1, 2)
    mirror_of(tmp_path)
    words = ["changes", str(tmp_path / "s" / "streams"), T, "--into", str(tmp_path / "mirror"), "m"]
    assert cli.run([*words, "--from", "1999-01-01"]) == 2 and "--into needs a --bookmark" in capsys.readouterr().err
    assert cli.run([*words, "--from", "1999-01-01", "--bookmark", "x"]) == 0
    assert capsys.readouterr().out == "2 changes of ns.t in m\n"
    assert cli.run([*words[:-1], "other", "--bookmark", "x"]) == 2
    assert "table 'other' does not exist in" in (said := capsys.readouterr().err)
    assert said.endswith(": create it first, with --primary-key\n")


@pytest.mark.parametrize("keys_max", [1 << 22, 16])
def test_a_mirror_sees_that_its_source_has_a_key_twice(tmp_path, monkeypatch, keys_max):
    """It had one row of the two, and lost that with the first that was deleted."""
    monkeypatch.setattr(batch_keys, "KEYS_MAX", keys_max)
    catalog = deltacompact.open_catalog(tmp_path)
    source = catalog.create_table("source", ["day"], ["id"])
    by_id, by_both = (catalog.create_table(f"by_{len(key)}", [], key) for key in (["id"], ["id", "day"]))
    for first, day in ((0, "mon"), (199, "tue")):
        source.append(pa.table({"id": range(first, first + 200), "day": [day] * 200}), {"day": day})
    for _ in range(2):
        with pytest.raises(InputError, match=r"^key id=199 of 'by_1' is that of several rows of 'source'"):
            mirror(source, by_id, "one", from_="1970-01-01")
    assert by_id.read().num_rows == 0 and by_id.history() == []
    assert mirror(source, by_both, "both", from_="1970-01-01") == 400
    source.append(pa.table({"id": [7], "day": ["mon"]}), {"day": "mon"}, "delete")
    assert mirror(source, by_both, "both") == 1
    assert sorted(map(str, by_both.read().to_pylist())) == sorted(map(str, source.read().to_pylist()))


@pytest.mark.parametrize("sort_keys", [[], ["at"]])
@pytest.mark.parametrize(("first", "then"), [("mon", "tue"), ("tue", "mon")])
def test_a_mirror_takes_a_row_that_moved_in_its_source_for_one_row(tmp_path, monkeypatch, sort_keys, first, then):
    """A feed has the partitions one after the other: the row's delete came behind its insert, and won."""
    monkeypatch.setattr(events, "BATCH_BYTES", 1)  # each batch is written apart
    catalog = deltacompact.open_catalog(tmp_path)
    source, copy = catalog.create_table("source", ["day"], ["id"]), catalog.create_table("copy", [], ["id"], sort_keys)
    source.append(pa.table({"id": [1, 2], "at": [7, 7], "day": [first, first]}), {"day": first})
    source.append(pa.table({"id": [3], "at": [7], "day": [then]}), {"day": then})
    assert mirror(source, copy, "m", from_="1970-01-01") == 3
    source.append(pa.table({"id": [1]}), {"day": first}, "delete")
    source.append(pa.table({"id": [1], "at": [5], "day": [then]}), {"day": then})
    assert mirror(source, copy, "m") == 2
    expected = [(1, then, 5), (2, first, 7), (3, then, 7)]
    assert sorted((row["id"], row["day"], row["at"]) for row in copy.read().to_pylist()) == expected


@pytest.mark.parametrize("into", ["stream", "sorted", "branch"])
@pytest.mark.parametrize(("first", "then"), [("mon", "tue"), ("tue", "mon")])
def test_a_mirror_keeps_a_row_whose_insert_came_in_an_earlier_batch_than_its_delete(tmp_path, into, first, then):
    """One append commits its partitions side by side, so a batch may end between them: the delete won, for ever."""
    catalog = deltacompact.open_catalog(tmp_path / "streams")
    source = catalog.create_table("source", ["day"], ["id"])
    if into == "branch":
        target = iceberg_mirror(Lake(tmp_path / "lake", "mirrors"))
    else:
        target = catalog.create_table("copy", [], ["id"], ["at"] if into == "sorted" else [])
    asked = {"columns": ["id"]} if into == "branch" else {}
    for day, at in ((first, 7), (then, 5)):
        source.append(pa.table({"id": [1], "at": [at], "day": [day]}), {"day": day})
        assert mirror(source, target, "m", from_="1970-01-01", **asked) == 1
    source.append(pa.table({"id": [1]}), {"day": first}, "delete")
    assert mirror(source, target, "m", **asked) == 2
    assert [row["id"] for row in target.read().to_pylist()] == [1]
    assert into == "branch" or copy_of(target) == copy_of(source)
    source.append(pa.table({"id": [1]}), {"day": then}, "delete")
    assert mirror(source, target, "m", **asked) == 1 and target.read().num_rows == 0


def copy_of(table):
    return sorted(map(str, table.read(columns=["id", "at", "day"]).to_pylist()))


def test_a_mirror_refuses_a_delete_that_leaves_two_rows_of_its_key(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path)
    source, copy = catalog.create_table("source", ["day"], ["id"]), catalog.create_table("copy", [], ["id"])
    for day in ("mon", "tue", "wed"):
        source.append(pa.table({"id": [1], "day": [day]}), {"day": day})
        mirror(source, copy, "m", from_="1970-01-01")
    source.append(pa.table({"id": [1]}), {"day": "wed"}, "delete")
    for _ in range(2):
        with pytest.raises(InputError, match=r"^key id=1 of 'copy' is that of several rows of 'source'"):
            mirror(source, copy, "m")
    assert copy.read()["day"].to_pylist() == ["wed"]


@pytest.mark.parametrize("few", [1 << 14, 0])
@pytest.mark.parametrize("keys_max", [1 << 22, 16])
def test_what_deletes_of_many_keys_leave_is_found_part_by_part(tmp_path, monkeypatch, keys_max, few):
    monkeypatch.setattr(batch_keys, "KEYS_MAX", keys_max)
    monkeypatch.setattr(batch_keys, "FEW_KEYS", few)
    catalog = deltacompact.open_catalog(tmp_path)
    key = ["id", "name", "x"]
    source, copy = catalog.create_table("source", ["day"], key), catalog.create_table("copy", [], key)
    named = {"name": [f"n{number % 7}" for number in range(100)], "x": [0.0, -0.5] * 50}
    for day in ("mon", "tue"):
        source.append(pa.table({"id": range(100), **named, "at": [1] * 100, "day": [day] * 100}), {"day": day})
        mirror(source, copy, "m", from_="1970-01-01")
    source.append(pa.table({"id": range(100), **named}), {"day": "mon"}, "delete")
    source.append(
        pa.table({"id": range(90, 100), **named} | {k: v[90:] for k, v in named.items()}), {"day": "tue"}, "delete"
    )
    assert mirror(source, copy, "m") == 200
    assert sorted(map(str, copy.read().to_pylist())) == sorted(map(str, source.read().to_pylist()))
    assert copy.read().num_rows == 90


@pytest.mark.parametrize("into", ["stream", "branch"])
def test_a_mirror_does_not_go_on_under_other_names_than_its_rows_have(tmp_path, into):
    """Rows of files that both ends have are not read: the mirror kept the old name, and had nothing by the new one."""
    lake = Lake(tmp_path, "renamed")
    fields = NestedField(1, "id", LongType(), required=True), NestedField(2, "a", LongType())
    for table_id in (T, "ns.m"):
        lake.create(table_id, Schema(*fields, identifier_field_ids=[1]), 2)
    source = deltacompact.open_catalog(lake.catalog).table(T)
    target = mirror_of(tmp_path) if into == "stream" else deltacompact.open_catalog(lake.catalog).table("ns.m")
    lake.append(T, [{"id": 1, "a": 1}])
    with lake.catalog.load_table(T).update_schema() as change:
        change.rename_column("a", "b")
    with lake.catalog.load_table(T).update_schema() as change:
        change.rename_column("b", "a")
        change.add_column("c", LongType())
    with lake.catalog.load_table("ns.m").update_schema() as change:
        change.add_column("c", LongType())
    narrow = deltacompact.open_catalog(tmp_path / "narrow").create_table("n", primary_keys=["id"])
    without = {"columns": ["id", "c"]}
    assert mirror(source, target, "b", from_="1970-01-01") == 1
    lake.append(T, [{"id": 2, "a": 2, "c": 2}])
    assert mirror(source, target, "b") == 1 and mirror(source, narrow, "n", from_="1970-01-01", **without) == 2
    with lake.catalog.load_table(T).update_schema() as change:
        change.rename_column("a", "b")
    for number in (3, 4):
        with pytest.raises(
            InputError, match=r"column 'b' of 'ns.t' was 'a' when '.*' got its rows, and is 'a' there: "
        ):
            mirror(source, target, "b")
        lake.append(T, [{"id": number, "b": number}])
    assert mirror(source, narrow, "n", **without) == 2
    renamed, to = (T, ("b", "a")) if into == "stream" else ("ns.m", ("a", "b"))
    with lake.catalog.load_table(renamed).update_schema() as change:
        change.rename_column(*to)
    assert mirror(source, target, "b") == 2
    assert sorted(map(str, target.read().to_pylist())) == sorted(map(str, source.read().to_pylist()))
    with lake.catalog.load_table(T).update_schema() as change:
        change.delete_column("c")
    assert mirror(source, target, "b") == 0
    with lake.catalog.load_table(T).update_schema() as change:
        change.add_column("c", LongType())
    with pytest.raises(InputError, match=r"column 'c' of 'ns.t' was made anew"):
        mirror(source, target, "b")
    again = deltacompact.open_catalog(tmp_path / "again").create_table("m", primary_keys=["id"])
    assert mirror(source, again, "again", from_="1970-01-01") == 4 and mirror(source, again, "again") == 0
    assert sorted(map(str, again.read().to_pylist())) == sorted(map(str, source.read().to_pylist()))


def test_a_mirror_does_not_lead_back_to_its_source(tmp_path):
    """Of two changes of a row, one here and one there, the older one came back."""
    catalog = deltacompact.open_catalog(tmp_path)
    one, other = (catalog.create_table(name, primary_keys=["id"]) for name in ("one", "other"))
    one.append(pa.table({"id": [1], "x": [1]}))
    with pytest.raises(InputError, match="'one' cannot be its own mirror"):
        mirror(one, one, "itself", from_="1970-01-01")
    assert mirror(one, other, "there", from_="1970-01-01") == 1
    with pytest.raises(InputError, match="'other' is the mirror of 'one', by bookmark 'there': drop it"):
        mirror(other, one, "back", from_="1970-01-01")
    one.drop_bookmark("there")
    assert mirror(other, one, "back", from_="1970-01-01") == 1


def test_a_mirror_asks_for_the_same_columns_and_rows_each_time(source, tmp_path):
    """With others from now on, rows that do not change would lack them, or stay."""
    target = mirror_of(tmp_path)
    source.append(3)
    asked = {"columns": ["id"], "where": "id > 1"}
    assert mirror(source.table, target, "mirror", from_="1999-01-01", **asked) > 0
    source.append(4)
    for other in ({**asked, "where": "id > 2"}, {**asked, "where": None}, {"where": "id > 1"}, {}):
        with pytest.raises(InputError, match=r"puts --columns id --where 'id > 1' into .* asks for .*take all rows"):
            mirror(source.table, target, "mirror", **other)
    assert mirror(source.table, target, "mirror", **asked) == 1
    source.append(5)
    assert mirror(source.table, target, "mirror", **asked) == 1
    assert sorted(target.read()["id"].to_pylist()) == [2, 3, 4, 5]


@pytest.mark.parametrize("into", ["stream", "branch"])
def test_a_first_batch_whose_run_died_is_not_done_by_a_run_that_asks_for_something_else(source, tmp_path, into):
    """The batch was known in the mirror, so its bookmark moved on: rows of the second filter were missing for ever."""
    (tmp_path / "lake").mkdir()
    target = mirror_of(tmp_path) if into == "stream" else iceberg_mirror(Lake(tmp_path / "lake", "mirrors"))
    source.append(3)
    begin = {"from_": "1999-01-01"}
    with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(source_of(source.table)), "commit", raises(KeyboardInterrupt))
        mirror(source.table, target, "b", where="id > 1", **begin)
    given = source.table.bookmarks()
    for other in ({}, {"where": "id > 2"}, {"where": "id > 1", "columns": ["id"]}):
        with pytest.raises(InputError, match=r"puts --where 'id > 1' into .* take all rows anew"):
            mirror(source.table, target, "b", **begin, **other)
    with pytest.raises(InputError, match="they go into another table"):
        mirror(source.table, mirror_of(tmp_path / "other"), "b", where="id > 1", **begin)
    assert source.table.bookmarks() == given
    mirror(source.table, target, "b", where="id > 1", **begin)
    assert sorted(target.read()["id"].to_pylist()) == [2, 3]
    history = target.history()
    assert sum(len(made.tokens) for made in history) == 1 if into == "stream" else len(history) == 1, "once"


def test_a_first_batch_of_a_mirror_of_an_earlier_release_is_not_done_with_another_filter(source, tmp_path):
    """Its table has no id of its creation that the bookmark could tell, so the filter was not looked at either."""
    mirror_of(tmp_path)
    (document,) = (tmp_path / "mirror").glob("*/table.json")
    declared = json.loads(document.read_text())
    del declared["creation"]
    document.write_text(json.dumps(declared))
    target = deltacompact.open_catalog(tmp_path / "mirror").table(document.parent.name)
    with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(source_of(source.table)), "commit", raises(KeyboardInterrupt))
        mirror(source.table, target, "b", where="id > 1", from_="1999-01-01")
    (given,) = source.table.bookmarks()
    assert given.into is None
    with pytest.raises(InputError, match=r"puts --where 'id > 1' into .* take all rows anew"):
        mirror(source.table, target, "b", from_="1999-01-01")
    mirror(source.table, target, "b", where="id > 1", from_="1999-01-01")


def test_a_first_batch_that_its_mirror_refuses_may_be_asked_for_in_other_words(source, tmp_path):
    target = deltacompact.open_catalog(tmp_path / "mirror").create_table("m", primary_keys=["id"])
    with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patched:
        patched.setattr(Appender, "append", raises(KeyboardInterrupt))
        mirror(source.table, target, "b", from_="1999-01-01", where="id > 1")
    assert mirror(source.table, target, "b") == 2


def raises(error):
    def raising(*_, **__):
        raise error

    return raising


def test_a_mirror_whose_schema_is_fixed_is_told_what_helps_it(tmp_path):
    """changes has no --schema-mode, which was all that the error named."""
    catalog = deltacompact.open_catalog(tmp_path)
    source = catalog.create_table("source", primary_keys=["id"])
    copy = catalog.create_table("copy", primary_keys=["id"], schema_mode="fixed")
    for column in ("a", "b"):
        source.append(pa.table({"id": [1], column: [1]}))
        if column == "b":
            with pytest.raises(SchemaError, match=r"or declare that mode \(create … --schema-mode merge\)"):
                mirror(source, copy, "m")
            assert cli.run(["create", str(tmp_path), "copy", "--primary-key", "id", "--schema-mode", "merge"]) == 0
            copy = deltacompact.open_catalog(tmp_path).table("copy")  # in another process
        mirror(source, copy, "m", from_="1970-01-01")
    assert copy.read().to_pylist() == [{"id": 1, "a": None, "b": 1}]
