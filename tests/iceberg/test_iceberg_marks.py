"""Dead rows become delete files: what the files hold, how manifests describe them, and when they are still true."""

from __future__ import annotations

import json
import struct
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from budgets import examples
from hand_made_tables import BY_DAY, data, equality, positions, state, vector
from hypothesis import given, settings
from hypothesis import strategies as st

from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import Limits
from deltacompact.base.numbers import Ordinal
from deltacompact.base.settings import Settings
from deltacompact.executors.local import LocalExecutor
from deltacompact.iceberg.deletes.matching import PATH_COLUMN, POSITION_COLUMN, Deletes, FileScanTask
from deltacompact.iceberg.marks.marking import FileToMark, Mark, Marker
from deltacompact.iceberg.marks.standing import MarkedHead, Standing
from deltacompact.iceberg.marks.tasks import LiveBitmap
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table import deletion_vectors
from deltacompact.iceberg.table.content_files import Content, ManifestEntry
from deltacompact.index.live_bitmaps import write_masks
from deltacompact.storage.local import LocalStore

ROWS = 40
POSITIONS_IN_FILE = st.sets(st.integers(0, ROWS - 1), max_size=ROWS)


def marker(folder: Path, version: int = 2, granularity: str = "file", task_rows_min: int = 1, **properties) -> Marker:
    """A marker whose tasks have few rows each, so that there are several."""
    chosen = Settings(executor="local", local_threads=1, limits=Limits(task_rows_min=task_rows_min))
    properties = {"write.delete.granularity": granularity} | properties
    metadata = replace(state(version=version).metadata, location=str(folder), properties=properties)
    return Marker(Tasks(LocalStore(folder), LocalExecutor(chosen)), metadata, chosen, "5c-")


def to_mark(entry: ManifestEntry, dead: set[int], former: Deletes | None = None) -> FileToMark:
    return FileToMark(FileScanTask(entry, former or Deletes()), np.array(sorted(dead), np.int64))


def in_file(mark: Mark) -> list[tuple[str, int]]:
    """The rows that a delete file names, as a reader of the format finds them."""
    if not mark.file.is_deletion_vector:
        table = pq.read_table(mark.file.path)
        return list(zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True))
    offset, size = mark.file.content_offset, mark.file.content_size
    blob = Path(mark.file.path).read_bytes()[offset : offset + size]
    return [(mark.file.referenced_data_file, row) for row in deletion_vectors.positions(blob, "").tolist()]


def as_former(marks: list[Mark], sequence: int) -> dict[str, Deletes]:
    """By data file: the marks as the table has them after the commit."""
    entries = [replace(positions("p", sequence), file=mark.file) for mark in marks]
    by_path: dict[str, Deletes] = {}
    for entry, mark in zip(entries, marks, strict=True):
        for task in mark.of:
            is_vector = mark.file.is_deletion_vector
            by_path[task.entry.file.path] = Deletes((), () if is_vector else (entry,), entry if is_vector else None)
    return by_path


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(2, 3),
    st.sampled_from(["file", "partition"]),
    st.lists(st.tuples(st.integers(0, 1), POSITIONS_IN_FILE, POSITIONS_IN_FILE), min_size=1, max_size=5),
    st.booleans(),
)
def test_marks_of_any_dead_rows(version, granularity, files, as_bitmaps):
    """After both marks a reader finds all dead rows; in version 2 none of them is named twice."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        marking = marker(folder, version, granularity)
        entries = [data(f"/d/{number}", 3, day, rows=ROWS) for number, (day, _, _) in enumerate(files)]
        first = marking.marks([to_mark(entry, dead) for entry, (_, dead, _) in zip(entries, files, strict=True)])
        former = as_former(first, 4)
        second = marking.marks(
            [
                replace(
                    to_mark(entry, dead, former.get(entry.file.path)),
                    **({"dead": bitmap(folder, number, dead)} if as_bitmaps else {}),
                )
                for number, (entry, (_, _, dead)) in enumerate(zip(entries, files, strict=True))
            ]
        )
        for number, (entry, (_, before, dead)) in enumerate(zip(entries, files, strict=True)):
            path = f"/d/{number}"
            then = [row for mark in first for of, row in in_file(mark) if of == path]
            now = [row for mark in second for of, row in in_file(mark) if of == path]
            assert then == sorted(before)
            assert now == (sorted(dead - before) if version == 2 else sorted(dead | before) if dead - before else [])
            for mark in (mark for mark in (*first, *second) if path in {task.entry.file.path for task in mark.of}):
                assert (mark.file.spec_id, mark.file.partition) == (entry.file.spec_id, entry.file.partition)
        assert sum(mark.new_rows for mark in second) == sum(len(dead - before) for _, before, dead in files)
        for mark in (*first, *second):
            check_described(mark, granularity)


def bitmap(folder: Path, number: int, dead: set[int]) -> LiveBitmap:
    lives = np.ones(ROWS, bool)
    lives[sorted(dead)] = False
    write_masks(LocalStore(folder), f"live-{number}.arrow", {Ordinal(number): np.packbits(lives, bitorder="little")})
    return LiveBitmap(f"live-{number}.arrow", Ordinal(number))


def check_described(mark: Mark, granularity: str) -> None:
    """The manifest entry says what the file holds."""
    named = in_file(mark)
    assert named == sorted(named)
    assert mark.file.content is Content.POSITION_DELETES
    assert mark.file.rows == len(named) > 0
    assert mark.file.file_bytes == Path(mark.file.path).stat().st_size
    paths = [path for path, _ in named]
    if mark.file.is_deletion_vector or granularity == "file":
        assert {mark.file.referenced_data_file} == set(paths)
    if not mark.file.is_deletion_vector:
        assert mark.file.lower_bounds[PATH_COLUMN] == paths[0].encode()
        assert mark.file.upper_bounds[PATH_COLUMN] == paths[-1].encode()
        rows = [row for _, row in named]
        bounds = mark.file.lower_bounds[POSITION_COLUMN], mark.file.upper_bounds[POSITION_COLUMN]
        assert [struct.unpack("<q", bound)[0] for bound in bounds] == [min(rows), max(rows)]


def test_rule_21_marks_have_the_spec_and_the_partition_of_their_data_file(tmp_path):
    others = data("/d/b", 3, day=None, rows=ROWS, spec_id=BY_DAY)
    sources = [to_mark(data("/d/a", 3, day=7, rows=ROWS), {1}), to_mark(others, {2})]
    sources = [*sources, to_mark(data("/d/c", 3, rows=ROWS), {3})]
    marks = marker(tmp_path, granularity="partition").marks(sources)
    assert [(mark.file.spec_id, mark.file.partition) for mark in marks] == [(BY_DAY, (7,)), (BY_DAY, (None,)), (0, ())]


def test_position_deletes_have_the_field_ids_of_the_spec(tmp_path):
    (mark,) = marker(tmp_path).marks([to_mark(data("/d/a", 3, rows=ROWS), {1})])
    schema = pq.ParquetFile(mark.file.path).schema
    columns = [schema.column(number) for number in range(2)]
    arrow = schema.to_arrow_schema()
    assert [field.metadata[b"PARQUET:field_id"] for field in arrow] == [b"2147483546", b"2147483545"]
    assert [(column.name, column.physical_type) for column in columns] == [
        ("file_path", "BYTE_ARRAY"),
        ("pos", "INT64"),
    ]
    assert [field.nullable for field in arrow] == [False, False]


OF_DATA, OF_DELETES = {"write.parquet.compression-codec": "gzip"}, {"write.delete.parquet.compression-codec": "snappy"}


@pytest.mark.parametrize(
    ("properties", "codec"), [({}, "ZSTD"), (OF_DATA, "GZIP"), (OF_DELETES, "SNAPPY"), (OF_DATA | OF_DELETES, "SNAPPY")]
)
def test_position_deletes_have_the_codec_that_the_tables_readers_know(tmp_path, properties, codec):
    marking = marker(tmp_path, **properties)
    (mark,) = marking.marks([to_mark(data("/d/a", 3, rows=ROWS), {1})])
    assert pq.read_metadata(mark.file.path).row_group(0).column(0).compression == codec
    marking = replace(marking, settings=replace(marking.settings, compression="brotli"))
    (mark,) = marking.marks([to_mark(data("/d/a", 3, rows=ROWS), {1})])
    assert pq.read_metadata(mark.file.path).row_group(0).column(0).compression == "BROTLI"


def test_rule_18_vectors_share_a_puffin_file_whose_footer_describes_them(tmp_path):
    sources = [to_mark(data(f"/d/{name}", 3, rows=ROWS), dead) for name, dead in (("a", {1, 2}), ("b", {3}))]
    marks = marker(tmp_path, version=3, task_rows_min=1000).marks(sources)
    (path,) = {mark.file.path for mark in marks}
    content = Path(path).read_bytes()
    assert content[:4] == content[-4:] == b"PFA1"
    size = int.from_bytes(content[-12:-8], "little")
    assert content[-12 - size - 4 : -12 - size] == b"PFA1"
    blobs = json.loads(content[-12 - size : -12])["blobs"]
    assert [(blob["offset"], blob["length"]) for blob in blobs] == [
        (mark.file.content_offset, mark.file.content_size) for mark in marks
    ]
    for blob, mark in zip(blobs, marks, strict=True):
        assert blob["type"] == "deletion-vector-v1"
        assert (blob["fields"], blob["snapshot-id"], blob["sequence-number"]) == ([2147483645], -1, -1)
        described = {"referenced-data-file": mark.file.referenced_data_file, "cardinality": str(mark.file.rows)}
        assert blob["properties"] == described


def test_rule_18_a_vector_supersedes_what_names_only_its_data_file(tmp_path):
    a = data("/d/a", 3, rows=ROWS)
    only_a, both = positions("p", 4, of=["/d/a"]), positions("q", 4, of=["/d/a", "/d/b"])
    of_b = vector("v", 4, "/d/b")
    mark = Mark(a.file, (to_mark(a, {1}).task,), 1)
    head = MarkedHead(state(a, data("/d/b", 3), only_a, both, of_b, version=3))
    assert head.superseded([mark]) == [only_a]
    old = vector("v", 4, "/d/a", offset=90)
    assert MarkedHead(state(a, old, of_b, version=3)).superseded([mark]) == [old]
    assert MarkedHead(state(a, only_a)).superseded([mark]) == []


@pytest.mark.parametrize("version", [2, 3])
def test_marks_on_another_head(version):
    a, p, q = data("/d/a", 3), positions("p", 4, of=["/d/a"]), positions("q", 5, of=["/d/a"])
    former = Deletes((), (p,))
    new_equality = equality("e", 9)
    found = {
        "same": MarkedHead(state(a, p, new_equality, data("/d/b", 8), version=version)).standing(a, former),
        "more": MarkedHead(state(a, p, q, version=version)).standing(a, former),
        "less": MarkedHead(state(a, q, version=version)).standing(a, former),
        "gone": MarkedHead(state(data("/d/b", 8), p, version=version)).standing(a, former),
        "again": MarkedHead(state(data("/d/a", 8), p, version=version)).standing(a, former),
    }
    assert found == {
        "same": Standing.AS_IT_WAS,
        "more": Standing.AS_IT_WAS if version == 2 else Standing.CHANGED,
        "less": Standing.CHANGED,
        "gone": Standing.GONE,
        "again": Standing.GONE,
    }


@pytest.mark.parametrize("version", [2, 3])
def test_a_row_beyond_the_end_is_refused(tmp_path, version):
    with pytest.raises(CorruptionError, match="/d/a has 40 rows, but row 40 is to be deleted"):
        marker(tmp_path, version).marks([to_mark(data("/d/a", 3, rows=ROWS), {40})])


def test_the_names_of_delete_files_begin_as_the_session_says(tmp_path):
    marker(tmp_path).marks([to_mark(data(f"/d/{name}", 3, rows=ROWS), {1}) for name in "ab"])
    assert [path.name.startswith("5c-") for path in tmp_path.rglob("*.parquet")] == [True, True]
