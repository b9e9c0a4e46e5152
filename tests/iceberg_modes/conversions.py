"""A table with deletes of several kinds, and its conversion in small parts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from iceberg_lake import SETTINGS, sorted_rows

from deltacompact.executors.local import LocalExecutor
from deltacompact.iceberg.deletes.matching import DeleteIndex, FileScanTask
from deltacompact.iceberg.marks.finding import Sizes
from deltacompact.iceberg.marks.marking import FileToMark, Marker
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table import deletion_vectors, locations
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.metadata import MAIN
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.convert.options import convert_options
from deltacompact.iceberg_modes.driver import ModeRun
from deltacompact.iceberg_modes.modes import CONVERT

T = "ns.t"
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.int32()), ("x", pa.float64())])
TINY = Sizes(keys_per_bucket=2, delete_files_per_task=1, delete_rows_per_task=2, rows_at_once=3)


def rows(*ids, day=None, x=None):
    return [{"id": number, "name": f"n{number}", "day": day, "x": x} for number in ids]


def table_of(lake, *appends, version=2, columns=COLUMNS):
    lake.create(T, columns, version=version)
    for numbers in appends:
        lake.append(T, rows(*numbers))


def prepared(lake, branch=MAIN, catalog=None, run=SETTINGS, sizes=TINY, before_commit=lambda: None, **chosen):
    table = IcebergTable.load(catalog or lake.catalog, T)
    own = {name: chosen.pop(name) for name in ("emit", "signs") if name in chosen}
    names = {
        "max_files": "max-files-to-convert",
        "max_commits": "partial-progress.max-commits",
        "max_failed_commits": "partial-progress.max-failed-commits",
        "where": "where",
    }
    options = {names[name]: value for name, value in chosen.items()}
    if "max_commits" in chosen:
        options["partial-progress.enabled"] = True
    return ModeRun(table, branch, convert_options(options), run, sizes, before_commit, **own, mode=CONVERT)


def convert(lake, **others):
    return prepared(lake, **others).run()


def once(act):
    """Run it at the first commit only."""
    calls = []

    def run():
        if not calls:
            calls.append(True)
            act()

    return run


def kinds(lake):
    return Counter(
        "vector" if entry.file.is_deletion_vector else entry.file.content.name.lower()
        for entry in lake.state(T).deletes
    )


def ids(lake, branch=MAIN):
    return sorted(row["id"] for row in live_rows(lake, branch))


def local(path: str) -> str:
    return path.removeprefix("file://")


def live_rows(lake, branch=MAIN) -> list[dict[str, Any]]:
    """The rows as a simple reader of the spec finds them. It knows no equality deletes, so there must be none."""
    now = lake.state(T, branch)
    assert not [entry for entry in now.deletes if entry.file.content is Content.EQUALITY_DELETES]
    found = []
    for entry in now.data:
        dead = dead_positions(now, entry)
        stored = pq.read_table(local(entry.file.path), partitioning=None).to_pylist()
        found += [row for position, row in enumerate(stored) if position not in dead]
    if now.metadata.format_version == 2:
        table = lake.catalog.load_table(T)
        scan = table.scan() if branch == MAIN else table.scan().use_ref(branch)
        assert repr(sorted_rows(scan.to_arrow().to_pylist())) == repr(sorted_rows(found))  # repr: NaN
    return found


def dead_positions(now, entry) -> set[int]:
    """The rows of a data file that its vector names, or its position deletes (rules 1 and 18)."""
    found: list[int] = []
    vectors = [delete for delete in now.deletes if delete.file.referenced_data_file == entry.file.path]
    vectors = [vector for vector in vectors if vector.file.is_deletion_vector]
    assert len(vectors) <= 1
    for vector in vectors:
        file = vector.file
        blob = Path(local(file.path)).read_bytes()[file.content_offset : file.content_offset + file.content_size]
        return set(deletion_vectors.positions(blob, file.path).tolist())
    for delete in now.deletes:
        same_scope = (delete.file.spec_id, delete.file.partition) == (entry.file.spec_id, entry.file.partition)
        if not delete.file.is_deletion_vector and same_scope and delete.sequence >= entry.sequence:
            table = pq.read_table(local(delete.file.path), partitioning=None).to_pylist()
            found += [row["pos"] for row in table if row["file_path"] == entry.file.path]
    assert len(found) == len(set(found)), "a row is deleted twice"
    return set(found)


def delete_by_vector(lake, path, dead):
    """Another writer's vector, in place of the one that the data file has."""
    table = IcebergTable.load(lake.catalog, T)
    now = lake.state(T)
    entry = next(entry for entry in now.data if entry.file.path == path)
    former = DeleteIndex(now).applying_to(entry)
    store = locations.store_of(now.metadata.location, {})
    marker = Marker(Tasks(store, LocalExecutor(SETTINGS)), now.metadata, SETTINGS, "other-")
    (mark,) = marker.marks([FileToMark(FileScanTask(entry, former), np.array(dead, np.int64))])
    gone = former.vector.file if former.vector else None
    neighbours = [
        delete.file for delete in now.deletes if gone and delete.file.path == gone.path and delete.file.key != gone.key
    ]
    lake.commit(table, [mark.file, *neighbours], gone=[gone.path] if gone else [])
