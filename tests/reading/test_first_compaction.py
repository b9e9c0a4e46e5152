"""A first compaction that is published while somebody reads: the reader sees the live rows, before it or after it.

reader     reads the table: no keys yet          compaction    declares the keys k, seals
reader     reads the state: compacted, a delta   -> folded by k, although the table had no keys a moment ago
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from simulation import Simulation

from deltacompact import DeltaStreamCatalog, Settings, compact

LOCAL = Settings(executor="local", local_threads=1)


def uncompacted(partitions: int) -> Simulation:
    """A table without keys: in each partition 1 and 2, then 2 again."""
    simulation = Simulation()
    catalog = simulation.catalog()
    catalog.create_table("t", ["p"])
    for partition in range(partitions):
        catalog.append("t", pa.table({"k": [1, 2], "v": ["a", "b"]}), {"p": partition})
        catalog.append("t", pa.table({"k": [2], "v": ["c"]}), {"p": partition})
    return simulation


def compacted_and_changed(simulation: Simulation, partitions: int) -> None:
    """The first compaction, then a delete of 1 and an update of 2."""
    catalog = simulation.catalog()
    compact("t", ["k"], delta_catalog_client=catalog, settings=LOCAL)
    for partition in range(partitions):
        catalog.append("t", pa.table({"k": [1]}), {"p": partition}, operation="delete")
        catalog.append("t", pa.table({"k": [2], "v": ["d"]}), {"p": partition})


def read(catalog: DeltaStreamCatalog) -> list[dict[str, Any]]:
    return catalog.read("t").to_pylist()


def scan(catalog: DeltaStreamCatalog) -> list[dict[str, Any]]:
    return catalog.scan("t").read_all().to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("reading", [read, scan])
def test_a_first_compaction_between_any_two_operations_of_a_reader_shows_no_dead_row(
    reading: Callable[[DeltaStreamCatalog], list[dict[str, Any]]],
) -> None:
    at, results = 0, set()
    while True:
        simulation = uncompacted(2)
        reader = simulation.start(reading)
        for _ in range(at):
            if not reader.done:
                reader.step()
        if reader.done:
            break
        compacted_and_changed(simulation, 2)
        results.add("".join(sorted(row["v"] for row in reader.finish())))
        at += 1
    # Of each partition the rows before it, those after it, or those before its last delta or two.
    before, compacted, deleted, after = "abc", "ac", "c", "d"
    possible = (before, compacted, deleted, after)
    assert results <= {"".join(sorted(letters + other)) for letters in possible for other in possible}
    assert {"aabbcc", "dd"} <= results


def test_an_export_during_a_first_compaction_has_no_dead_row(tmp_path: Path) -> None:
    simulation = uncompacted(1)
    exporter = simulation.start(lambda catalog: catalog.table("t").export(str(tmp_path / "t.parquet")))
    exporter.run_to("list", "t/partitions/")
    compacted_and_changed(simulation, 1)
    assert exporter.finish() == 1


def test_spark_sees_no_dead_row_of_a_table_that_is_compacted_while_its_files_are_chosen() -> None:
    from deltacompact.spark.reading import live_files

    simulation = uncompacted(1)
    partition = simulation.catalog().partitions("t")[0]
    reader = simulation.start(lambda catalog: live_files(catalog, "t", partition))
    reader.run_to("get", "stream/hint.json")
    compacted_and_changed(simulation, 1)
    lives = [file.rows if bits is None else int(bits.sum()) for file, bits in reader.finish()]
    assert sum(lives) == 1
