"""A version is offered, read and rolled back to only where every object of it is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stores import InterceptedStore
from tables import one_row_simulated

from deltacompact import DeltaStreamCatalog, InputError, NotFoundError, Settings, compact
from deltacompact.base.model import Partition
from deltacompact.delta_streams.log.objects import LogLimits
from deltacompact.delta_streams.streams import stream_files
from deltacompact.delta_streams.versions import rollback, versions
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.storage.memory import MemoryStore

ALL = Partition()
LOCAL = Settings(executor="local", local_threads=1, rewrite_dead_fraction=0.6)
HOURS = 3600


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys)})


def run(catalog: DeltaStreamCatalog) -> None:
    (session,) = compact("t", delta_catalog_client=catalog, settings=LOCAL).sessions
    assert session.error is None


@pytest.fixture
def catalog(tmp_path: Path) -> DeltaStreamCatalog:
    """Version 2 has everything: compacted files under deletion vectors, runs, relocations, deltas, long entries."""
    made = DeltaStreamCatalog(MemoryStore(), log_limits=LogLimits(entry_bytes_max=400))
    made.create_table("t", (), ["k"])
    made.append("t", rows(*range(40)))
    run(made)
    made.append("t", rows(1, 2, 3))
    run(made)
    pq.write_table(rows(100), tmp_path / "landed.parquet")
    made.append_files("t", [tmp_path / "landed.parquet"], reference=True)
    made.append("t", rows(200))
    assert made.state("t", ALL).opened.number == 2
    run(made)
    return made


def objects_of(catalog: DeltaStreamCatalog, number: int) -> dict[str, list[str]]:
    (state,) = [info.state for info in versions(catalog, "t", ALL) if info.state.opened.number == number]
    assert state.index is not None
    manifest = read_manifest(catalog.store, state.index)
    files = stream_files(state)
    return {
        "files": [file.path for file in files if "://" not in file.path],
        "masks": [file.deletions.masks_path for file in files if file.deletions],
        "index manifest": [state.index.path],
        "index files": list(manifest.paths),
        "bodies": list(state.manifests),
    }


KINDS = ["files", "masks", "index manifest", "index files"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_of_which_one_object_is_missing_is_not_offered(catalog: DeltaStreamCatalog, kind: str) -> None:
    store: Any = catalog.store
    paths = objects_of(catalog, 2)[kind]
    assert paths
    for path in paths:
        data = store.get(path)
        store.delete([path])
        (info,) = [info for info in versions(catalog, "t", ALL) if info.state.opened.number == 2]
        assert not info.retained, path
        for work in (lambda: catalog.read("t", version="2"), lambda: rollback(catalog, "t", "2")):
            with pytest.raises(NotFoundError, match="cannot be read any more") as refused:
                work()
            assert path in str(refused.value)
        store.put(path, data)
    assert all(info.retained for info in versions(catalog, "t", ALL))
    assert sorted(catalog.read("t", version="2")["k"].to_pylist()) == [*range(40), 100, 200]
    rollback(catalog, "t", "2")
    assert sorted(catalog.read("t")["k"].to_pylist()) == [*range(40), 100, 200]


def test_a_body_that_a_log_names_and_is_missing_is_named(catalog: DeltaStreamCatalog) -> None:
    """No vacuum deletes bodies: the log is damaged."""
    path, *_ = objects_of(catalog, 2)["bodies"]
    catalog.store.delete([path])
    for work in (lambda: versions(catalog, "t", ALL), lambda: catalog.read("t", version="2")):
        with pytest.raises(NotFoundError, match="is missing") as refused:
            work()
        assert path in str(refused.value)


def test_a_file_that_was_appended_by_reference_and_is_gone_takes_its_version_with_it(
    catalog: DeltaStreamCatalog, tmp_path: Path
) -> None:
    (tmp_path / "landed.parquet").unlink()
    assert [info.retained for info in versions(catalog, "t", ALL)] == [True, True, False, True]
    with pytest.raises(NotFoundError, match=r"landed\.parquet is missing"):
        rollback(catalog, "t", "2")


def test_versions_are_verified_by_listing_and_not_file_by_file(catalog: DeltaStreamCatalog) -> None:
    asked: list[tuple[str, str]] = []

    def intercept(kind: str, path: str, act: Callable[[], Any]) -> Any:
        asked.append((kind, path))
        return act()

    counting = DeltaStreamCatalog(InterceptedStore(catalog.store, intercept))  # type: ignore[arg-type]
    versions(counting, "t", ALL)
    rooms = [path for kind, path in asked if kind == "list" and "/stream/" not in path]
    assert rooms == ["t/data/", "t/index/", "t/manifest/"]
    assert not [path for kind, path in asked if kind in ("stat", "open") and "/stream/" not in path]


def test_a_rollback_that_is_held_up_until_its_version_is_too_old_is_refused_before_its_last_put() -> None:
    simulation, made = one_row_simulated()
    run(made)
    made.append("t", rows(2))
    simulation.now_s += 35 * HOURS
    back = simulation.start(lambda catalog: rollback(catalog, "t", "0"))
    active = made.state("t", ALL).version
    back.run_to("put_if_absent", f"t/stream/{active}/")  # the seal
    made.append("t", rows(3))
    simulation.now_s += 2 * HOURS
    with pytest.raises(InputError, match="sealed more than 36 hours ago"):
        back.finish()  # the slot was taken: it looks at the age again
    assert sorted(simulation.catalog().read("t")["k"].to_pylist()) == [1, 2, 3]


def test_a_rollback_looks_at_the_age_right_before_the_seal() -> None:
    simulation, made = one_row_simulated()
    run(made)
    simulation.now_s += 35 * HOURS
    back = simulation.start(lambda catalog: rollback(catalog, "t", "0"))
    back.run_to("put_if_absent", "t/stream/2-")
    simulation.now_s += 2 * HOURS
    with pytest.raises(InputError, match="sealed more than 36 hours ago"):
        back.finish()


def test_a_restatement_that_loses_its_slot_looks_at_the_age_of_its_files_again() -> None:
    simulation, made = one_row_simulated()
    again = simulation.start(lambda catalog: catalog.restate("t", rows(7)))
    again.run_to("put_if_absent", "t/stream/0/")
    made.append("t", rows(2))
    simulation.now_s += 40 * HOURS
    with pytest.raises(Exception, match="took so long to write"):
        again.finish()
    assert sorted(simulation.catalog().read("t")["k"].to_pylist()) == [1, 2]
