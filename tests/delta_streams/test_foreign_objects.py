"""Objects of other programs among ours hide nothing and are never deleted; entries that are missing are said by name.

stream/0/…00.json  …01.json  …02.json.bak  …02.json      the copy is skipped
stream/0/…00.json  …01.json  …03.json                    a hole: nobody goes on
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from simulation import Simulation
from stores import InterceptedStore
from tables import problems

from deltacompact import CorruptionError, DeltaStreamCatalog, InputError, NotFoundError, Settings, compact
from deltacompact.base.model import Partition
from deltacompact.cli import run as command_line
from deltacompact.delta_streams.log.log import StreamLog
from deltacompact.delta_streams.log.objects import LogLimits
from deltacompact.delta_streams.paths import StreamPaths, TablePaths, stream_root_of
from deltacompact.delta_streams.versions import rollback
from deltacompact.maintenance.check import check
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import ObjectStat

ALL = Partition()
LOCAL = Settings(executor="local", local_threads=1)
DAYS = 24 * 3600


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys)})


def entry(sequence: int, version: str = "0") -> str:
    return StreamPaths("t").entry(version, sequence)


def keys(catalog: DeltaStreamCatalog, **how: Any) -> list[int]:
    return sorted(catalog.read("t", **how)["k"].to_pylist())


def run(catalog: DeltaStreamCatalog) -> str:
    (session,) = compact("t", delta_catalog_client=catalog, settings=LOCAL).sessions
    if session.error:
        raise session.error
    assert session.version
    return session.version


@pytest.fixture
def simulation() -> Simulation:
    """Four appends: keys 1 to 4 in entries 1 to 4 of version 0."""
    simulation = Simulation()
    catalog = simulation.catalog()
    catalog.create_table("t", primary_keys=["k"])
    for key in (1, 2, 3, 4):
        catalog.append("t", rows(key))
        simulation.now_s += 1
    return simulation


FOREIGN = [
    "t/stream/0/",
    "t/stream/",
    entry(2) + ".bak",
    "t/stream/0/_SUCCESS",
    "t/stream/0/.DS_Store",
    "t/stream/0/0000000000000000000.json",
    "t/stream/0/000000000000000000001.json",
    f"t/stream/0/{chr(0x660) * 19}{chr(0x665)}.json",
    "t/stream/0/old/00000000000000000009.json",
    "t/stream/copy of 0/00000000000000000000.json",
    "t/checkpoints/0/",
    "t/checkpoints/0/00000000000000000900.json.bak",
    "t/partitions/",
    "t/partitions/all.bak",
    "t/partitions/day=mon",
    "t/partitions/_SUCCESS",
]


@pytest.mark.parametrize("path", FOREIGN)
@pytest.mark.slow
def test_a_foreign_object_in_a_log_folder_hides_no_entry_and_stays(simulation: Simulation, path: str) -> None:
    simulation.store.put(path, b"")
    assert keys(simulation.catalog()) == [1, 2, 3, 4]
    simulation.catalog().append("t", rows(5))
    assert simulation.catalog().partitions("t") == [ALL]
    assert problems(simulation.catalog()) == []
    run(simulation.catalog())
    simulation.now_s += 4 * DAYS
    simulation.catalog().append("t", rows(6))
    vacuum(simulation.catalog(), "t")
    assert keys(simulation.catalog()) == [1, 2, 3, 4, 5, 6] and problems(simulation.catalog()) == []
    assert simulation.store.get(path) == b""


def test_a_foreign_object_among_the_marks_is_no_partition() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day", "hour"], ["k"])
    catalog.append("t", rows(1), {"day": "ä/b", "hour": None})
    marks = TablePaths.of("t").partitions
    for name in ("", "_SUCCESS", "day=mon", "day=mon/", "day=mon/hour=1.crc/x", "hour=1/day=mon", "day=%zz/hour=ä"):
        catalog.store.put(marks + name, b"")
    fresh = DeltaStreamCatalog(catalog.store)
    assert [dict(each.values) for each in fresh.partitions("t")] == [{"day": "ä/b", "hour": None}]
    assert keys(fresh) == [1]


@pytest.mark.parametrize(
    "path",
    [
        "t/data/notes.txt",
        "t/data/" + "5c" * 16 + ".parquet.bak",
        "t/data/backup/" + "5c" * 16 + ".parquet",
        "t/data/x/y/" + "5c" * 16 + ".parquet",
        "t/index/5C5C.arrow",
        "t/manifest/" + "5c" * 16 + ".json.old",
        "t/sessions/readme.md",
        "t/sessions/" + "5c" * 12 + "/notes.json",
        "t/sessions/mine/plan.json",
        "t/sessions/" + "5c" * 12 + "/",
    ],
)
def test_a_foreign_object_among_files_is_never_deleted(simulation: Simulation, path: str) -> None:
    simulation.store.put(path, b"mine")
    simulation.now_s += 4 * DAYS
    simulation.catalog().append("t", rows(5))
    run(simulation.catalog())
    simulation.now_s += 4 * DAYS
    simulation.catalog().append("t", rows(6))
    (result,) = vacuum(simulation.catalog(), "t")
    assert simulation.store.get(path) == b"mine" and result.deleted
    assert keys(simulation.catalog()) == [1, 2, 3, 4, 5, 6]


def test_names_that_we_make_are_told_from_others() -> None:
    name = "5c" * 16
    for ours in (
        f"data/{name}.parquet",
        f"data/{name}.CSV",
        f"data/{name}",
        f"data/{name}.csv.gz",
        f"data/{'5c' * 12}/{name}.parquet",
        f"index/rehash-{name}/{name}.arrow",
        f"index/retract-{name}/{name}.arrow",
        f"index/{'5c' * 12}/{name}.masks.arrow",
        f"index/{'5c' * 12}/{name}.exchange.arrow",
        f"index/{name}.manifest.json",
        f"manifest/{name}.json",
        f"sessions/{'5c' * 12}/output-0000000003.json",
        f"sessions/{'5c' * 12}/outputs-00001.json",
    ):
        assert stream_root_of(f"data/day=x%2Fy/{ours}") == "data/day=x%2Fy", ours
    for other in (f"data/{name}.parquet.bak", f"landing/{name}.csv", f"data/{name.upper()}.csv", "data/a.csv"):
        assert stream_root_of(f"t/{other}") is None, other


# --- holes ---------------------------------------------------------------------------------------------------------


def test_a_stream_that_was_never_begun_has_no_hole(catalog: DeltaStreamCatalog) -> None:
    catalog.create_table("t", ["day"], ["k"])
    with pytest.raises(NotFoundError, match="table 't' has no partition day=1"):
        catalog.state("t", Partition.of(["day"], {"day": 1}))


WORK: dict[str, Callable[[DeltaStreamCatalog], Any]] = {
    "read": keys,
    "append": lambda catalog: catalog.append("t", rows(9)),
    "compact": run,
    "restate": lambda catalog: catalog.restate("t", rows(9)),
    "rollback": lambda catalog: rollback(catalog, "t", "0"),
    "vacuum": lambda catalog: vacuum(catalog, "t"),
}


@pytest.mark.parametrize("missing", [0, 1, 2, 3])
@pytest.mark.parametrize("work", WORK)
def test_a_hole_in_a_log_is_refused_by_name_and_nothing_is_changed(
    simulation: Simulation, work: str, missing: int
) -> None:
    simulation.store.delete([entry(missing)])
    log_before = [stat.path for stat in simulation.store.list("t/stream/")]
    files = [stat.path for stat in simulation.store.list("t/data/")]
    simulation.now_s += 4 * DAYS
    with pytest.raises(CorruptionError) as refused:
        WORK[work](simulation.catalog())
    assert entry(missing) in str(refused.value) and "restore it from a backup" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert [stat.path for stat in simulation.store.list("t/stream/")] == log_before
    assert set(files) <= {stat.path for stat in simulation.store.list("t/data/")}
    (problem,) = problems(simulation.catalog())
    assert entry(missing) in problem


@pytest.mark.parametrize("work", ["compact", "vacuum", "restate", "rollback"])
def test_a_process_that_has_read_the_log_looks_for_holes_all_the_same(simulation: Simulation, work: str) -> None:
    warm = simulation.catalog()
    run(warm)
    version = warm.state("t", ALL).version
    late = simulation.catalog()
    late.append("t", rows(5))
    late.append("t", rows(6))
    simulation.store.delete([entry(2, version)])
    with pytest.raises(CorruptionError, match=r"00000000000000000002\.json is missing"):
        WORK[work](warm)
    assert "00000000000000000002.json is missing" in problems(warm)[0]


def test_a_hole_in_a_sealed_version_is_seen_by_check_and_vacuum(simulation: Simulation) -> None:
    run(simulation.catalog())
    simulation.store.delete([entry(2)])
    simulation.now_s += 4 * DAYS
    simulation.catalog().append("t", rows(5))
    before = [stat.path for stat in simulation.store.list("")]
    with pytest.raises(CorruptionError, match=entry(2)):
        vacuum(simulation.catalog(), "t")
    assert [stat.path for stat in simulation.store.list("")] == before
    assert entry(2) in problems(simulation.catalog())[0]


def test_a_hole_in_one_partition_leaves_the_others_to_be_checked_and_compacted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = DeltaStreamCatalog(LocalStore(tmp_path))
    catalog.create_table("t", ["day"], ["k"])
    for day in ("mon", "tue"):
        for key in (1, 2):
            catalog.append("t", rows(key), {"day": day})
    (tmp_path / "t/day=mon/stream/0/00000000000000000001.json").unlink()
    fresh = DeltaStreamCatalog(LocalStore(tmp_path))
    monday, tuesday = check(fresh, "t")
    assert "day=mon/stream/0/00000000000000000001.json is missing" in monday.problems[0]
    assert tuesday.problems == ()
    failed, done = compact("t", delta_catalog_client=fresh, settings=LOCAL).sessions
    assert isinstance(failed.error, CorruptionError) and done.live == 2
    assert command_line(["vacuum", str(tmp_path), "t"]) == 1
    assert "00000000000000000001.json is missing" in capsys.readouterr().err
    with pytest.raises(CorruptionError):
        fresh.read("t")


class Paged(InterceptedStore):
    """A store whose listing missed one entry: it was put between two pages."""

    def __init__(self, inner: MemoryStore, missed: str) -> None:
        super().__init__(inner, lambda kind, path, act: act())
        self.missed = missed

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        return (stat for stat in super().list(prefix, start_after) if stat.path != self.missed)


@pytest.mark.parametrize("missed", [0, 1, 3, 4])
def test_an_entry_that_a_listing_has_missed_is_no_hole(simulation: Simulation, missed: int) -> None:
    catalog = DeltaStreamCatalog(Paged(simulation.store, entry(missed)), clock=simulation.clock)
    expected = [1, 2, 3] if missed == 4 else [1, 2, 3, 4]
    assert keys(catalog) == expected  # the last one was put after the listing: the read came before it
    assert problems(catalog) == []


def test_an_object_with_the_name_of_an_entry_that_is_none_is_named(simulation: Simulation) -> None:
    for data, said in ((b"", "is not JSON"), (b'{"format":1,"kind":"committed"}', "is not a log entry")):
        simulation.store.put(entry(2), data)
        with pytest.raises(CorruptionError, match=said) as refused:
            keys(simulation.catalog())
        assert entry(2) in str(refused.value)


def test_a_body_of_an_entry_that_is_missing_is_not_the_end_of_the_log(simulation: Simulation) -> None:
    warm = simulation.catalog()
    assert keys(warm) == [1, 2, 3, 4]
    simulation.log_limits = LogLimits(entry_bytes_max=100)
    simulation.catalog().append("t", rows(5))
    (body,) = [stat.path for stat in simulation.store.list("t/manifest/")]
    simulation.store.delete([body])
    for catalog in (warm, simulation.catalog()):
        for work in ("read", "append", "compact", "vacuum"):
            with pytest.raises((CorruptionError, NotFoundError), match=body):
                WORK[work](catalog)
    assert body in problems(warm)[0]


# --- hints ---------------------------------------------------------------------------------------------------------


def losing_version(simulation: Simulation) -> str:
    """A compaction writes its successor and dies before the seal."""
    actor = simulation.start(run)
    actor.run_to("put_if_absent", "t/stream/0/")
    simulation.end()
    (version,) = {stat.path.split("/")[2] for stat in simulation.store.list("t/stream/1-")}
    return version


@pytest.mark.parametrize(
    "hint", [b"", b"{}", b"[]", b"7", b'"0"', b'{"version":7}', b'{"version":"1-%s"}' % (b"5c" * 16), b"\xff\xfe"]
)
def test_a_hint_that_leads_nowhere_is_passed_over(simulation: Simulation, hint: bytes) -> None:
    simulation.store.put("t/stream/hint.json", hint)
    simulation.catalog().append("t", rows(5))
    assert keys(simulation.catalog()) == [1, 2, 3, 4, 5] and problems(simulation.catalog()) == []
    run(simulation.catalog())
    simulation.store.put("t/stream/hint.json", hint)
    assert keys(simulation.catalog()) == [1, 2, 3, 4, 5] and problems(simulation.catalog()) == []
    simulation.now_s += 4 * DAYS
    vacuum(simulation.catalog(), "t")
    assert keys(simulation.catalog()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "more", [{}, {"parent": "0", "seal": 2}, {"parent": "0", "seal": 5}, {"parent": 0, "seal": "x"}]
)
def test_a_hint_to_a_version_that_was_never_released_misleads_nobody(
    simulation: Simulation, more: dict[str, Any]
) -> None:
    version = losing_version(simulation)
    simulation.store.put("t/stream/hint.json", json.dumps({"version": version, **more}).encode())
    simulation.catalog().append("t", rows(5))
    assert keys(simulation.catalog()) == [1, 2, 3, 4, 5]
    assert simulation.catalog().state("t", ALL).version == "0"
    simulation.now_s += 4 * DAYS
    simulation.catalog().append("t", rows(6))
    before = [stat.path for stat in simulation.store.list("")]
    with pytest.raises(CorruptionError, match=f"hint.json names version {version}"):
        vacuum(simulation.catalog(), "t")
    assert [stat.path for stat in simulation.store.list("")] == before
    assert f"names version {version}" in problems(simulation.catalog())[0]
    simulation.store.delete(["t/stream/hint.json"])
    vacuum(simulation.catalog(), "t")
    assert keys(simulation.catalog()) == [1, 2, 3, 4, 5, 6] and problems(simulation.catalog()) == []


def test_a_hint_of_older_code_and_a_stale_one_are_followed(simulation: Simulation) -> None:
    first = run(simulation.catalog())
    assert json.loads(simulation.store.get("t/stream/hint.json")) == {"version": first, "parent": "0", "seal": 5}
    simulation.catalog().append("t", rows(5))
    second = run(simulation.catalog())
    for version in (first, second):
        simulation.store.put("t/stream/hint.json", json.dumps({"version": version}).encode())
        assert simulation.catalog().state("t", ALL).version == second
        assert keys(simulation.catalog()) == [1, 2, 3, 4, 5] and problems(simulation.catalog()) == []


# --- logs that lost their end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("written_to", [False, True])
def test_a_seal_that_was_removed_is_missed_by_vacuum_and_check(simulation: Simulation, written_to: bool) -> None:
    version = run(simulation.catalog())
    if written_to:
        simulation.catalog().append("t", rows(5))
    simulation.store.delete([entry(5)])
    simulation.now_s += 4 * DAYS
    for hinted in (True, False):
        if not hinted:
            simulation.store.delete(["t/stream/hint.json"])
        before = [stat.path for stat in simulation.store.list("")]
        with pytest.raises(CorruptionError, match=version):
            vacuum(simulation.catalog(), "t")
        assert [stat.path for stat in simulation.store.list("")] == before
        assert problems(simulation.catalog())
    if written_to:
        simulation.store.put("t/stream/hint.json", json.dumps({"version": version, "parent": "0", "seal": 5}).encode())
        with pytest.raises(CorruptionError, match=r"00000000000000000005\.json is missing"):
            simulation.catalog().append("t", rows(6))


def test_files_of_entries_that_were_cut_off_are_kept_until_something_is_committed(simulation: Simulation) -> None:
    simulation.now_s += 3600
    simulation.catalog().append("t", rows(5))
    cut_off = simulation.store.get(entry(5))
    simulation.store.delete([entry(5)])
    simulation.now_s += 4 * DAYS
    for _ in range(2):
        (result,) = vacuum(simulation.catalog(), "t")
        assert result.deleted == () and len(result.doubtful) == 1
    simulation.store.put_if_absent(entry(5), cut_off)
    assert keys(simulation.catalog()) == [1, 2, 3, 4, 5]


def test_what_a_dead_writer_left_goes_once_somebody_else_has_committed(simulation: Simulation) -> None:
    simulation.now_s += 3600
    dead = simulation.start(lambda catalog: catalog.append("t", rows(9)))
    dead.run_to("put_if_absent", "t/stream/0/")
    simulation.end()
    simulation.now_s += 4 * DAYS
    (result,) = vacuum(simulation.catalog(), "t")
    assert result.deleted == () and len(result.doubtful) == 1
    simulation.catalog().append("t", rows(5))
    (result,) = vacuum(simulation.catalog(), "t")
    assert len(result.deleted) == 1 and result.doubtful == ()
    assert keys(simulation.catalog()) == [1, 2, 3, 4, 5]


def test_a_fence_does_not_make_what_is_doubtful_old(simulation: Simulation) -> None:
    simulation.now_s += 3600
    losing_version(simulation)
    simulation.now_s += 4 * DAYS
    (first,) = vacuum(simulation.catalog(), "t")
    assert len(first.fenced) == 1 and first.doubtful and not first.deleted
    simulation.now_s += 4 * DAYS
    (second,) = vacuum(simulation.catalog(), "t")
    assert second.doubtful == first.doubtful and not second.deleted
    run(simulation.catalog())
    simulation.now_s += 1
    assert vacuum(simulation.catalog(), "t")[0].deleted
    assert keys(simulation.catalog()) == [1, 2, 3, 4] and problems(simulation.catalog()) == []


def test_a_vacuum_refuses_where_a_file_that_is_named_is_newer_than_the_log(simulation: Simulation) -> None:
    (path, *_) = [stat.path for stat in simulation.store.list("t/data/")]
    simulation.now_s += 3600
    simulation.store.put(path, simulation.store.get(path))
    with pytest.raises(CorruptionError, match="newer than every entry"):
        vacuum(simulation.catalog(), "t")


def test_a_vacuum_after_the_clock_was_set_back_says_when_it_will_go_on(simulation: Simulation) -> None:
    simulation.now_s += DAYS
    simulation.catalog().append("t", rows(5))
    simulation.now_s -= DAYS
    for entry in [stat.path for stat in simulation.store.list("t/stream/0/")][-1:]:
        simulation.store.put(entry, simulation.store.get(entry))  # as of a writer under which the clock was set back
    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"set back \(then commit something, once the file"):
            vacuum(simulation.catalog(), "t")
        simulation.catalog().append("t", rows(6))
    simulation.now_s += DAYS
    simulation.catalog().append("t", rows(7))
    vacuum(simulation.catalog(), "t")
    assert keys(simulation.catalog()) == [1, 2, 3, 4, 5, 6, 7]


def test_a_vacuum_refuses_where_a_file_that_is_named_is_missing(simulation: Simulation) -> None:
    run(simulation.catalog())
    compacted = simulation.catalog().state("t", ALL).compacted
    assert compacted is not None
    simulation.store.delete([compacted.files[0].path])
    simulation.now_s += 4 * DAYS
    with pytest.raises(CorruptionError, match="which the active version names, is missing"):
        vacuum(simulation.catalog(), "t")


def test_a_checkpoint_beyond_the_end_of_its_log_is_missed_entries(simulation: Simulation) -> None:
    simulation.store.put("t/checkpoints/0/00000000000000000009.json", b"{}")
    with pytest.raises(CorruptionError, match="was made of 9 entries, but the log has 5"):
        vacuum(simulation.catalog(), "t")
    assert "was made of 9 entries" in problems(simulation.catalog())[0]
    simulation.log_limits = LogLimits(entries_between_checkpoints=3)
    with pytest.raises(CorruptionError, match=r"00000000000000000008\.json is missing"):
        keys(simulation.catalog())


# --- checkpoints -----------------------------------------------------------------------------------------------------


OFTEN = LogLimits(entries_between_checkpoints=2)


@pytest.mark.slow
def test_checkpoints_of_a_long_log_are_few_and_vacuumed_and_the_log_reads_the_same() -> None:
    catalog = DeltaStreamCatalog(MemoryStore(), log_limits=OFTEN)
    catalog.create_table("t", primary_keys=["k"])
    for key in range(199):
        catalog.append("t", rows(key))
    checkpoints = [stat for stat in catalog.store.list("t/checkpoints/")]
    log_bytes = sum(stat.bytes for stat in catalog.store.list("t/stream/0/"))
    assert len(checkpoints) < 25 and sum(stat.bytes for stat in checkpoints) < 6 * log_bytes
    tails = [int(stat.path[-25:-5]) for stat in checkpoints]
    assert all(later <= earlier * 1.25 + 2 for earlier, later in pairwise(tails))
    assert tails[-1] > 200 / 1.26
    (result,) = vacuum(catalog, "t")
    assert [stat.path for stat in catalog.store.list("t/checkpoints/")] == [checkpoints[-1].path]
    assert set(result.deleted) == set(checkpoints[:-1])
    fresh = DeltaStreamCatalog(catalog.store, log_limits=OFTEN)
    assert fresh.state("t", ALL) == catalog.log("t", ALL).state_at("0", 200) and problems(fresh) == []


def test_a_checkpoint_that_vanishes_while_it_is_read_costs_time_only() -> None:
    catalog = DeltaStreamCatalog(MemoryStore(), log_limits=OFTEN)
    catalog.create_table("t", primary_keys=["k"])
    for key in range(9):
        catalog.append("t", rows(key))

    def intercept(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if kind == "get" and "/checkpoints/" in path:
            raise NotFoundError(path)
        return act()

    reader = DeltaStreamCatalog(InterceptedStore(catalog.store, intercept), log_limits=OFTEN)  # type: ignore[arg-type]
    assert keys(reader) == list(range(9))
    newest = [stat.path for stat in catalog.store.list("t/checkpoints/")][-1]
    for garbage in (b"", b"[]", b'{"format":1,"entries":[7],"manifests":[]}', b'{"format":99}', b'{"format":1}'):
        catalog.store.put(newest, garbage)
        assert keys(DeltaStreamCatalog(catalog.store, log_limits=OFTEN)) == list(range(9))


def test_a_log_of_many_appends_is_probed_and_not_listed_anew() -> None:
    listed = []

    def intercept(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if kind == "list":
            listed.append(path)
        return act()

    catalog = DeltaStreamCatalog(InterceptedStore(MemoryStore(), intercept))
    catalog.create_table("t")
    for key in range(50):
        catalog.append("t", rows(key))
    assert len(listed) < 5
    assert isinstance(catalog.log("t", ALL), StreamLog)


def test_a_table_folder_under_another_name_is_refused_and_can_be_dropped(simulation):
    catalog = simulation.catalog()
    run(catalog)
    store = catalog.store
    for stat in list(store.list("t/")):  # as `cp -r` does: the log of the copy names the files of "t"
        store.put(f"copy{stat.path.removeprefix('t')}", store.get(stat.path))
    copy = DeltaStreamCatalog(store)
    for use in (copy.read, copy.create_table, lambda name: copy.append(name, rows(5)), lambda name: vacuum(copy, name)):
        with pytest.raises(InputError, match=r"copy/table\.json describes table 't': .* give it that name again"):
            use("copy")
    copy.drop_table("copy")
    assert not list(store.list("copy/"))
    assert keys(catalog) == [1, 2, 3, 4]
