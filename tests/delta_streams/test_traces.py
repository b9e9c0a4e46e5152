"""The nineteen traces that break a naive version of the design (found by model checking), each played step by step.

What would go wrong, and below it the rule that prevents it:

 1  a stalled writer's put lands in a deleted log
      entries in the chain are never deleted
 2  a vacuum takes a version that is about to be released
      fence first; a session reads every entry before its seal
 3  two compactors share a successor's name
      a version is named <number>-<uuid>
 4  a writer follows an unsealed successor
      only seals are followed
 5  a delete that the source folded itself never reaches the destination
      the destination is rebuilt from compacted rows and tombstones
 6  a late upsert lives because a tombstone was lost
      tombstones are index entries, and every reader folds them
 7  a retried batch overwrites newer rows after a switch
      tokens are carried into the successor
 8  an append takes another one's entry for its own
      every append has a fresh commit id
 9  a CDC delete with all columns null deletes nothing
      keyless is decided for each row, before any union
10  two first compactions with different keys both win
      keys.json is put if absent before the seal
11  the winner's files have the loser's pointers
      index paths carry the session; the entry names manifest and checksum
12  rows of one file in two buckets get wrong destinations
      rows are ranked by group of source files over all buckets
13  base file 3 and delta file 3 are the same four bytes
      rounds use session ordinals; file numbers are never reused
14  a resume with other limits mixes two plans
      the record overrides the arguments; losers adopt it
15  presence bytes are counted, inverted, or widths changed
      one place decides the encoding, and re-encodes an index
16  the partition column is in one file and not in the next
      it is no part of the digest
17  a vacuum kills readers of a file that was dropped a minute ago
      age counts from the seal
18  fast writers starve the seal
      one carried entry takes all late commits
19  sequence 10 sorts before 9
      sequence numbers have 20 digits

W is a writer, C a compactor, S a source table, D its destination; entry 0.2 is number 2 of version 0.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from simulation import Fault, Simulation
from stores import Crash, FailsAt, InterceptedStore
from tables import problems

from deltacompact import (
    ConflictError,
    DeltaStreamCatalog,
    InputError,
    PositionError,
    SchemaError,
    SessionResult,
    Settings,
    compact,
)
from deltacompact.base.model import Partition
from deltacompact.executors.local import LocalExecutor
from deltacompact.index.keys import Encoding, KeyClass, KeyColumn
from deltacompact.maintenance.check import rehash_table
from deltacompact.maintenance.vacuum.vacuum import VacuumResult, vacuum
from deltacompact.storage.memory import MemoryStore

ALL = Partition()
LOCAL = Settings(executor="local", local_threads=1)
HOURS, DAYS = 3600, 24 * 3600


def rows(*pairs: tuple[Any, Any], name: str = "v") -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in pairs], pa.int64()), name: [value for _, value in pairs]})


def run(catalog: DeltaStreamCatalog, table_id: str = "t", **arguments: Any) -> SessionResult:
    (session,) = compact(table_id, delta_catalog_client=catalog, **{"settings": LOCAL, **arguments}).sessions
    return session


def live(catalog: DeltaStreamCatalog, table_id: str = "t") -> dict[Any, Any]:
    """Values by key; a key that lives twice is an error."""
    table = catalog.read(table_id)
    pairs = [tuple(row.values())[:2] for row in table.to_pylist()]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def assert_sound(catalog: DeltaStreamCatalog, table_id: str = "t") -> None:
    assert problems(catalog, table_id) == []


def clean(simulation: Simulation, table_id: str = "t") -> VacuumResult:
    (result,) = vacuum(simulation.catalog(), table_id)
    return result


@pytest.fixture
def simulation() -> Any:
    simulation = Simulation()
    yield simulation
    simulation.end()


@pytest.fixture
def catalog(simulation: Simulation) -> DeltaStreamCatalog:
    """A table with one row, seen by a process that is never held back."""
    catalog = simulation.catalog()
    catalog.create_table("t", primary_keys=["k"])
    catalog.append("t", rows((1, "a")))
    return catalog


@pytest.mark.parametrize("passing_s", [1 * HOURS, 4 * DAYS], ids=["an hour", "four days"])
def test_trace_1_a_writer_that_stalled_before_a_taken_slot_of_a_dead_version_loses_it(
    simulation: Simulation, catalog: DeltaStreamCatalog, passing_s: float
) -> None:
    w = simulation.start(lambda c: c.append("t", rows((2, "w")), token="w"))
    w.run_to("put_if_absent", "t/stream/0/00000000000000000002")
    catalog.append("t", rows((3, "b")))
    run(catalog)
    simulation.now_s += passing_s
    clean(simulation)
    w.step()
    assert [stat.path[-6] for stat in simulation.store.list("t/stream/0/")] == ["0", "1", "2", "3"]
    if passing_s < 3 * DAYS:
        w.finish()
    else:  # its file may be gone by now, so it is refused, and written again
        with pytest.raises(ConflictError):
            w.finish()
        simulation.start(lambda c: c.append("t", rows((2, "w")), token="w")).finish()
    assert live(catalog) == {1: "a", 2: "w", 3: "b"}
    assert len(catalog.state("t", ALL).commits) == 1


def test_trace_2_a_prepared_version_that_a_vacuum_found_old_cannot_be_released_any_more(
    simulation: Simulation, catalog: DeltaStreamCatalog
) -> None:
    c = simulation.start(run)
    c.run_to("put_if_absent", "t/stream/0/")
    simulation.now_s += 4 * DAYS
    cleaned = clean(simulation)
    assert len(cleaned.fenced) == 1 and any("/data/" in stat.path for stat in cleaned.deleted)
    with pytest.raises(ConflictError, match="fenced"):
        c.finish()
    assert live(catalog) == {1: "a"}
    assert run(catalog).live == 1
    clean(simulation)
    assert live(catalog) == {1: "a"}
    assert_sound(catalog)


def test_trace_2_a_version_that_was_released_before_the_vacuum_came_to_its_fence_loses_nothing(
    simulation: Simulation, catalog: DeltaStreamCatalog
) -> None:
    c = simulation.start(run)
    c.run_to("put_if_absent", "t/stream/0/")
    simulation.now_s += 4 * DAYS
    v = simulation.start(lambda catalog: vacuum(catalog, "t"))
    v.run_to("put_if_absent", "t/stream/0/")  # the fence
    c.finish()
    v.finish()
    simulation.now_s += 4 * DAYS
    clean(simulation)
    assert live(catalog) == {1: "a"}
    assert_sound(catalog)


def test_trace_3_two_compactors_never_share_a_version(simulation: Simulation, catalog: DeltaStreamCatalog) -> None:
    first = simulation.start(lambda c: run(c, hash_bucket_count=1))
    second = simulation.start(lambda c: run(c, hash_bucket_count=2))
    first.run_to("put_if_absent", "t/stream/1-")
    second.run_to("put_if_absent", "t/stream/0/")
    catalog.append("t", rows((2, "b")))
    first.run_to("put_if_absent", "t/stream/0/")
    versions = {stat.path.split("/")[2] for stat in simulation.store.list("t/stream/1-")}
    assert len(versions) == 2
    published = first.finish().version
    with pytest.raises(ConflictError):
        second.finish()
    assert catalog.state("t", ALL).version == published
    assert live(catalog) == {1: "a", 2: "b"}


def test_trace_4_a_writer_follows_seals_and_not_the_newest_version_that_lies_there(
    simulation: Simulation, catalog: DeltaStreamCatalog
) -> None:
    dead = simulation.start(lambda c: run(c, hash_bucket_count=1))
    dead.run_to("put_if_absent", "t/stream/0/")
    c = simulation.start(lambda c: run(c, hash_bucket_count=2))
    c.run_to("put_if_absent", "t/stream/0/")
    simulation.catalog().append("t", rows((2, "b")))
    assert simulation.catalog().state("t", ALL).version == "0"
    c.finish()
    simulation.catalog().append("t", rows((3, "c")))
    assert simulation.catalog().state("t", ALL).version == c.result.version
    assert live(simulation.catalog()) == {1: "a", 2: "b", 3: "c"}


def test_trace_5_a_delete_that_the_source_has_folded_itself_reaches_the_destination() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("S", primary_keys=["k"], sort_keys=["t"])
    catalog.append("S", rows((1, 1), (2, 1), (3, 1), name="t"), stream_position=1)
    run(catalog, "S", destination_compacted_table_id="D")
    assert live(catalog, "D") == {1: 1, 2: 1, 3: 1}
    catalog.append("S", rows((1, None), name="t"), operation="delete", stream_position=2)
    catalog.append("S", rows((2, 9), name="t"), operation="delete", stream_position=3)
    run(catalog, "S")
    run(catalog, "S", destination_compacted_table_id="D")
    assert live(catalog, "D") == live(catalog, "S") == {3: 1}
    compacted = catalog.state("D", ALL).compacted
    assert compacted is not None and all(file.path.startswith("D/") for file in compacted.files)
    catalog.append("S", rows((1, 5), (2, 5), name="t"), stream_position=4)  # late for 2, which has a tombstone
    run(catalog, "S", destination_compacted_table_id="D")
    assert live(catalog, "D") == live(catalog, "S") == {1: 5, 3: 1}
    assert_sound(catalog, "D")


def test_trace_6_a_late_upsert_stays_dead_however_the_tombstone_travels() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"], sort_keys=["t"])
    catalog.append("t", rows((1, 1), (2, 1), name="t"), stream_position=1)
    catalog.append("t", rows((1, 10), name="t"), operation="delete", stream_position=2)
    run(catalog)
    rehash_table(catalog, "t", 3, LocalExecutor(LOCAL))
    run(catalog, destination_compacted_table_id="copy")
    catalog.append("t", rows((1, 5), name="t"), stream_position=3)
    assert live(catalog) == {2: 1}
    run(catalog, destination_compacted_table_id="copy")
    assert live(catalog, "copy") == {2: 1}
    assert run(catalog).deleted == 1
    assert live(catalog) == {2: 1}
    catalog.append("t", rows((1, 10), name="t"), stream_position=4)
    assert live(catalog) == {1: 10, 2: 1}


@pytest.mark.parametrize("token", ["etl:7", "nightly"])
def test_trace_7_a_batch_whose_acknowledgement_was_lost_is_known_in_the_next_version(
    simulation: Simulation, catalog: DeltaStreamCatalog, token: str
) -> None:
    w = simulation.start(lambda c: c.append("t", rows((1, "old")), token=token))
    w.run_to("put_if_absent", "t/stream/0/")
    w.step(Fault.DIES_AFTER)
    catalog.append("t", rows((1, "new")))
    run(catalog)
    catalog.append("t", rows((2, "b")))
    run(catalog)
    again = simulation.start(lambda c: c.append("t", rows((1, "old")), token=token)).finish()
    assert again.position < catalog.state("t", ALL).opened.last_position
    assert live(catalog) == {1: "new", 2: "b"}
    assert catalog.state("t", ALL).commits == ()


def test_trace_8_two_appends_of_one_process_do_not_take_each_others_entry_for_their_own() -> None:
    store = MemoryStore()
    inner: list[Any] = []

    def intercept(kind: str, path: str, act: Any) -> Any:
        if kind == "put_if_absent" and path.startswith("t/stream/0/") and path.endswith("1.json") and not inner:
            inner.append(None)
            inner[0] = catalog.append("t", rows((1, "a")))  # the same process, and the same rows
        return act()

    catalog = DeltaStreamCatalog(InterceptedStore(store, intercept), clock=lambda: 1e9)
    catalog.create_table("t")
    outer = catalog.append("t", rows((1, "a")))
    commits = DeltaStreamCatalog(store).state("t", ALL).commits
    assert len({commit.commit_id for commit in commits}) == 2
    assert [commit.last_position for commit in commits] == [inner[0].position, outer.position]
    assert catalog.read("t").num_rows == 2


@pytest.mark.parametrize("grouping", ["one file", "two files", "two deltas", "two sessions"])
def test_trace_9_a_delete_with_every_column_present_and_null_deletes(grouping: str) -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"], sort_keys=["t"])
    catalog.append("t", rows((1, 50), (2, 50), (3, 50), name="t"), stream_position=1)
    keyless, keyed = [(1, None)], [(2, 40), (3, 60)]
    if grouping == "one file":
        catalog.append("t", rows(*keyless, *keyed, name="t"), operation="delete", stream_position=2)
    elif grouping == "two files":
        only_the_key = pa.table({"k": [1]})
        catalog.append("t", [only_the_key, rows(*keyed, name="t")], operation="delete", stream_position=2)
    else:
        catalog.append("t", rows(*keyless, name="t"), operation="delete", stream_position=2)
        if grouping == "two sessions":
            run(catalog)
        catalog.append("t", rows(*keyed, name="t"), operation="delete", stream_position=3)
    assert live(catalog) == {2: 50}
    run(catalog)
    assert live(catalog) == {2: 50}


def test_trace_10_of_two_first_compactions_with_different_keys_one_wins(simulation: Simulation) -> None:
    catalog = simulation.catalog()
    catalog.create_table("t", partition_keys=["day"])
    for day in "12":
        table = pa.table({"id": [1, 1], "name": ["x", "y"]})
        catalog.append("t", table, {"day": day})
    by_id = simulation.start(lambda c: run(c, primary_keys=["id"], partitions=[{"day": 1}]))
    by_name = simulation.start(lambda c: run(c, primary_keys=["name"], partitions=[{"day": 2}]))
    by_id.run_to("put_if_absent", "keys.json")
    by_name.run_to("put_if_absent", "keys.json")
    by_name.finish()
    with pytest.raises(InputError, match="primary keys"):
        by_id.finish()
    assert simulation.catalog().table("t").keys.primary == ("name",)
    run(catalog, partitions=[{"day": 1}])
    assert catalog.read("t").num_rows == 4


def test_trace_10_the_first_version_of_a_destination_is_released_whole(
    simulation: Simulation, catalog: DeltaStreamCatalog
) -> None:
    c = simulation.start(lambda c: run(c, destination_compacted_table_id="d"))
    c.run_to("put_if_absent", "d/stream/1-")
    assert live(catalog, "d") == {}
    c.run_to("put_if_absent", "d/stream/0/")
    assert live(catalog, "d") == {}
    with pytest.raises(InputError, match="destination"):
        simulation.catalog().append("d", rows((9, "z")))
    c.finish()
    assert live(catalog, "d") == {1: "a"}


def test_trace_11_the_winners_files_never_get_the_losers_pointers(
    simulation: Simulation, catalog: DeltaStreamCatalog
) -> None:
    catalog.append("t", [rows((n, f"b{n}")) for n in range(2, 9)])
    winner = simulation.start(lambda c: run(c, rows_per_compacted_file=1, hash_bucket_count=2))
    loser = simulation.start(lambda c: run(c, rows_per_compacted_file=3, hash_bucket_count=2))
    winner.run_to("put_if_absent", "t/stream/0/")
    loser.run_to("put_if_absent", "t/stream/0/")
    winner.finish()
    with pytest.raises(ConflictError):
        loser.finish()
    assert_sound(catalog)
    catalog.append("t", rows((5, "new")))
    assert live(catalog) == {1: "a", 5: "new"} | {n: f"b{n}" for n in (2, 3, 4, 6, 7, 8)}
    run(catalog)
    assert_sound(catalog)


def bucket_of(key: int, buckets: int) -> int:
    encoding = Encoding((KeyColumn("k", KeyClass.INTEGER),))
    digest = encoding.digests(pa.table({"k": [key]}), "a.parquet")[0].tobytes()
    return int.from_bytes(digest, "big") % buckets


def test_trace_12_rows_of_one_file_in_different_buckets_are_ranked_together() -> None:
    in_a = [key for key in range(100) if bucket_of(key, 2) == 0]
    in_b = [key for key in range(100) if bucket_of(key, 2) == 1]
    keys = [in_a[0], in_b[0], in_a[1], in_b[1], in_a[2]]
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    catalog.append("t", rows(*((key, "old") for key in keys)))
    run(catalog, hash_bucket_count=2, rows_per_compacted_file=3)
    assert_sound(catalog)
    catalog.append("t", rows((keys[1], "new")))  # every row behind it moves up
    run(catalog, rows_per_compacted_file=3)
    assert_sound(catalog)
    for key in keys:
        catalog.append("t", rows((key, "newest")))
        run(catalog, rows_per_compacted_file=3)
        assert_sound(catalog)
    assert live(catalog) == dict.fromkeys(keys, "newest")


def test_trace_13_a_file_number_is_never_used_for_two_files() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    path_of: dict[int, str] = {}
    for turn in range(5):
        catalog.append("t", [rows((turn * 2 + n, "x")) for n in range(3)])
        delta_files = len(catalog.state("t", ALL).deltas[0].files)
        run(catalog, rows_per_compacted_file=2, settings=Settings(executor="local", rows_per_round=1))
        compacted = catalog.state("t", ALL).compacted
        assert compacted is not None
        for file in compacted.files:
            assert path_of.setdefault(file.number, file.path) == file.path
        assert len({file.number for file in compacted.files}) == len(compacted.files)
        assert compacted.next_file_number > max(path_of) and max(path_of) >= delta_files
    assert_sound(catalog)


def test_trace_14_a_resume_with_another_file_size_does_not_touch_the_files_of_the_first(
    simulation: Simulation, catalog: DeltaStreamCatalog
) -> None:
    catalog.append("t", [rows((n, f"b{n}")) for n in range(2, 9)])
    before = live(catalog)
    dead = simulation.start(lambda c: run(c, rows_per_compacted_file=2))
    dead.run_to("put_if_absent", "outputs-")
    dead.step(Fault.DIES_AFTER)
    other = run(catalog, rows_per_compacted_file=5)
    assert (other.rounds_resumed, other.files_new) == (0, 2)
    assert live(catalog) == before
    assert_sound(catalog)


def test_trace_14_two_live_resumers_publish_one_result_and_no_mix(
    simulation: Simulation, catalog: DeltaStreamCatalog
) -> None:
    catalog.append("t", [rows((n, f"b{n}")) for n in range(2, 9)])
    before = live(catalog)
    arguments = {"rows_per_compacted_file": 2, "settings": Settings(executor="local", rows_per_round=3)}
    dead = simulation.start(lambda c: run(c, **arguments))
    dead.run_to("put_if_absent", "round-00002")
    dead.step(Fault.DIES_AFTER)
    resumers = [simulation.start(lambda c: run(c, **arguments)) for _ in range(2)]
    while not all(each.done for each in resumers):
        for each in resumers:
            if not each.done:
                each.step()
    assert [type(each.error) for each in resumers].count(ConflictError) == 1
    (published,) = [each.result for each in resumers if each.error is None]
    assert published.rounds_resumed == 2
    assert live(catalog) == before
    assert_sound(catalog)


def test_trace_15_four_int64_sort_columns_fit_and_one_byte_more_does_not() -> None:
    names = ["a", "b", "c", "d"]
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("fits", primary_keys=["k"], sort_keys=names)
    catalog.append("fits", pa.table({"k": [1, 1], "x": [1, 2], **{n: [1, 1 if n != "d" else 0] for n in names}}))
    run(catalog, "fits")
    assert live(catalog, "fits") == {1: 1}
    catalog.create_table("wide", primary_keys=["k"], sort_keys=[*names, "e"])
    with pytest.raises(SchemaError, match="33 bytes, 32 at most"):
        catalog.append("wide", pa.table({"k": [1], **{n: [1] for n in names}, "e": [True]}))


def test_trace_15_a_null_loses_in_a_descending_column_too() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"], sort_keys=[("t", "descending")])
    catalog.append("t", rows((1, 2**62), (2, None), name="t"))
    catalog.append("t", rows((1, None), (2, 2**62), name="t"))
    run(catalog)
    assert live(catalog) == {1: 2**62, 2: 2**62}


def test_trace_15_a_widened_sort_column_compares_with_what_the_index_holds() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"], sort_keys=["t"])
    narrow = pa.table({"k": [1, 2, 3], "t": pa.array([-5, 5, 2**31 - 1], pa.int32())})
    catalog.append("t", narrow)
    run(catalog)
    catalog.append("t", pa.table({"k": [1, 2, 3], "t": pa.array([-6, 6, 2**31], pa.int64())}))
    expected = {1: -5, 2: 6, 3: 2**31}
    assert live(catalog) == expected
    run(catalog)
    assert live(catalog) == expected


def test_trace_16_a_partition_column_that_one_file_lacks_is_no_part_of_the_key() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", partition_keys=["day"], primary_keys=["k", "day"])
    catalog.append("t", pa.table({"k": [1], "day": ["mon"], "v": ["a"]}), {"day": "mon"})
    catalog.append("t", pa.table({"k": [1], "v": ["b"]}), {"day": "mon"})
    assert catalog.read("t").to_pylist() == [{"k": 1, "day": "mon", "v": "b"}]
    run(catalog)
    assert catalog.read("t").to_pylist() == [{"k": 1, "day": "mon", "v": "b"}]
    with pytest.raises(SchemaError, match="day"):
        catalog.append("t", pa.table({"k": [1], "day": ["tue"], "v": ["c"]}), {"day": "mon"})


def test_trace_17_age_counts_from_the_seal_that_dropped_a_file(
    simulation: Simulation, catalog: DeltaStreamCatalog
) -> None:
    (old,) = [stat.path for stat in simulation.store.list("t/data/")]
    simulation.now_s += 365 * DAYS
    reader = simulation.start(lambda c: c.read("t").to_pydict())
    reader.run_to("open", old)
    run(catalog)
    simulation.now_s += 60
    assert clean(simulation).deleted == ()
    assert reader.finish() == {"k": [1], "v": ["a"]}
    simulation.now_s += 3 * DAYS
    assert old in [stat.path for stat in clean(simulation).deleted]
    assert live(catalog) == {1: "a"}


def test_trace_18_fast_writers_do_not_starve_the_seal(simulation: Simulation, catalog: DeltaStreamCatalog) -> None:
    c = simulation.start(run)
    number = 1
    for _ in range(3):
        c.run_to("put_if_absent", "t/stream/0/")
        for _ in range(40):
            number += 1
            catalog.append("t", rows((number, "late")))
        c.step()  # the slot is taken
    puts = 0
    while not c.done:
        puts += c.pending is not None and c.pending[0] == "put_if_absent" and "/stream/" in c.pending[1]
        c.step()
    assert puts == 2  # what came last is carried in one entry, then the seal
    assert c.finish().live == 1
    successor = list(simulation.store.list(f"t/stream/{c.result.version}/"))
    assert len(successor) == 5  # opened, compacted, carried three times
    assert live(simulation.catalog()) == {1: "a"} | dict.fromkeys(range(2, number + 1), "late")


def test_trace_19_the_tenth_entry_comes_after_the_ninth() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    for position in range(1, 13):
        catalog.append("t", rows((1, position)), stream_position=position)
    fresh = DeltaStreamCatalog(catalog.store)
    assert [delta.position for delta in fresh.state("t", ALL).deltas] == list(range(1, 13))
    assert live(fresh) == {1: 12}
    with pytest.raises(PositionError):
        fresh.append("t", rows((1, 0)), stream_position=12)
    run(fresh)
    assert live(DeltaStreamCatalog(catalog.store)) == {1: 12}


def test_a_crash_is_not_caught_by_anything_between_the_store_and_the_caller() -> None:
    """What the traces above lean on."""
    catalog = DeltaStreamCatalog(InterceptedStore(MemoryStore(), FailsAt(0, error=Crash)))
    with pytest.raises(Crash):
        catalog.create_table("t")
