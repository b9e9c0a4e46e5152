"""Tabular files of every type: what is read is what was written, in slices too, and nulls stay nulls."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import struct

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import deltacompact
from deltacompact import ContentType, Settings, compact
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import feather_files, files, formats, inspecting, orc_files, parquet_read, writing
from deltacompact.tabular.row_groups import WriteOptions

PLAIN = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "name": ["a", "", None, 'quo"te, line\nbreak'],
        "price": pa.array(
            [decimal.Decimal("1.50"), None, decimal.Decimal("-2.25"), decimal.Decimal(0)], pa.decimal128(9, 2)
        ),
        "day": pa.array([datetime.date(1995, 4, 3), None, datetime.date(1969, 12, 31), datetime.date(2100, 1, 1)]),
        "at": pa.array([0, None, -1, 2**40], pa.timestamp("us")),
        "share": [0.5, None, float("inf"), -0.0],
        "done": [True, False, None, True],
    }
)


def written(table, kind):
    sink = io.BytesIO()
    match kind:
        case "parquet":
            pq.write_table(table, sink, row_group_size=2)
        case "feather":
            pa.feather.write_feather(table, sink, chunksize=2)
        case "feather-v1":
            pa.feather.write_feather(table, sink, version=1)
        case "arrow-file":
            with pa.ipc.new_file(sink, table.schema) as out:
                out.write_table(table, max_chunksize=2)
        case "arrow-stream":
            with pa.ipc.new_stream(sink, table.schema) as out:
                out.write_table(table)
        case "orc":
            pa.orc.write_table(table, sink)
        case "csv":
            pa.csv.write_csv(table, sink)
        case "json":
            for row in table.to_pylist():
                sink.write(json.dumps(row, default=str).encode() + b"\n")
    return sink.getvalue()


SUFFIX = {
    "parquet": ".parquet",
    "feather": ".feather",
    "feather-v1": ".feather",
    "arrow-file": ".arrow",
    "arrow-stream": ".arrow",
    "orc": ".orc",
    "csv": ".csv",
    "json": ".jsonl",
}


@pytest.mark.filterwarnings("ignore:Feather V1")
@pytest.mark.parametrize("kind", SUFFIX)
def test_every_type_is_appended_compacted_and_read(tmp_path, kind):
    """The first file, of Parquet, gives the types; the second comes as whatever it is and replaces its rows."""
    table = PLAIN.drop_columns(["price"]) if kind == "feather-v1" else PLAIN
    if kind == "json":  # JSON has no infinity
        table = table.set_column(5, "share", pa.array([0.5, None, 1.0, -0.0]))
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", table.slice(0, 1))
    given = tmp_path / f"given{SUFFIX[kind]}"
    given.write_bytes(written(table, kind))
    delta = catalog.append_files("t", [given])
    assert delta.rows == 4
    # ORC knows nanoseconds only, so that the column is widened to them
    assert catalog.read("t").select(table.column_names).cast(table.schema).sort_by("id").equals(table)
    compact("t", delta_catalog_client=catalog, settings=Settings(executor="local"))
    assert catalog.read("t").select(table.column_names).cast(table.schema).sort_by("id").equals(table)


@pytest.mark.parametrize("kind", [kind for kind in SUFFIX if kind not in ("feather-v1",)])
def test_slices_and_columns(kind):
    store = MemoryStore()
    table = PLAIN.select(["id", "name", "done"])
    path = f"x{SUFFIX[kind]}"
    store.put(path, written(table, kind))
    file = inspecting.inspect(store, path, formats.content_type_of(path), inspecting.Asked(table.schema))
    assert file.rows == 4
    for start in range(4):
        for stop in range(start + 1, 5):
            slices = list(files.read(store, file, ["done", "id", "absent"], (start, stop)))
            assert slices[0][0] == start
            whole = pa.concat_tables([piece for _, piece in slices])
            assert whole.equals(table.select(["id", "done"]).slice(start, stop - start))


def test_an_empty_arrow_file_may_leave_out_its_list_of_batches():
    data = bytearray(written(PLAIN.schema.empty_table(), "arrow-file"))
    (length,) = struct.unpack_from("<i", data, len(data) - 10)
    footer = len(data) - 10 - length
    root = footer + struct.unpack_from("<i", data, footer)[0]
    fields = root - struct.unpack_from("<i", data, root)[0]
    struct.pack_into("<H", data, fields + 4 + 2 * 3, 0)
    assert feather_files.batches_of(pa.BufferReader(bytes(data)), None).rows == []


def test_rows_behind_a_range_are_not_decoded(monkeypatch):
    """A change feed asks for a few rows of a row group: the cost is that of the rows before them."""
    sink, store, decoded = io.BytesIO(), MemoryStore(), []
    pq.write_table(pa.table({"id": range(300)}), sink, row_group_size=100)
    store.put("x.parquet", sink.getvalue())
    file = inspecting.inspect(store, "x.parquet", ContentType.PARQUET)
    read = parquet_read._decoded
    monkeypatch.setattr(parquet_read, "_decoded", lambda *args: (decoded.append(b.num_rows) or b for b in read(*args)))
    for start, stop in ((0, 300), (120, 130), (90, 215), (299, 300)):
        rows = [
            value for _, slice_ in files.read(store, file, None, (start, stop)) for value in slice_["id"].to_pylist()
        ]
        assert rows == list(range(start, stop))
    assert decoded == [300, 30, 215, 100]


@pytest.mark.parametrize("kind", ["arrow", "orc"])
def test_batches_and_stripes_outside_of_a_range_are_not_decoded(monkeypatch, kind):
    """Every task that got a range of rows decoded the file from its beginning."""
    sink, store, decoded = io.BytesIO(), MemoryStore(), []
    rows = pa.table({"id": range(40_000), "text": ["x"] * 40_000})
    if kind == "orc":
        pa.orc.write_table(rows, sink, stripe_size=1 << 15, batch_size=10_000)
    else:
        pa.feather.write_feather(rows, sink, chunksize=10_000, compression="zstd")
    store.put(f"x.{kind}", sink.getvalue())
    file = inspecting.inspect(store, f"x.{kind}", formats.content_type_of(f"x.{kind}"))
    open_file, stripe = pa.ipc.open_file, orc_files.stripe

    class Opened:
        def __init__(self, *arguments, **options):
            self.file = open_file(*arguments, **options)

        def __getattr__(self, name):
            return getattr(self.file, name)

        def get_batch(self, number):
            decoded.append(10_000)
            return self.file.get_batch(number)

    monkeypatch.setattr(pa.ipc, "open_file", Opened)
    monkeypatch.setattr(orc_files, "stripe", lambda *args: decoded.append(10_000) or stripe(*args))
    for start, stop in ((0, 40_000), (10_000, 20_000), (25_000, 25_001), (39_999, 40_000)):
        decoded.clear()
        found = [
            id_ for _, slice_ in files.read(store, file, ["id"], (start, stop)) for id_ in slice_["id"].to_pylist()
        ]
        assert found == list(range(start, stop))
        assert sum(decoded) == 10_000 * (-(-stop // 10_000) - start // 10_000)


def test_no_damage_to_an_arrow_file_is_more_than_a_refused_file():
    """The rows of batches are found by offsets, which may lead anywhere."""
    data, refused = written(PLAIN.select(["id", "name"]), "arrow-file"), 0
    for at in range(len(data)):
        store = MemoryStore()
        store.put("x.arrow", data[:at] + b"\xfe" * 8 + data[at + 8 :])
        try:
            file = inspecting.inspect(store, "x.arrow", ContentType.FEATHER, decoded=True)
            assert sum(table.num_rows for _, table in files.read(store, file)) == file.rows
        except deltacompact.InputError as error:
            assert "x.arrow" in str(error)
            refused += 1
    assert 100 < refused < len(data)


@pytest.mark.parametrize("content_type", [ContentType.PARQUET, ContentType.FEATHER, ContentType.ORC, ContentType.CSV])
def test_compacted_files_of_every_type_that_can_be_written(content_type):
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", PLAIN.slice(0, 2))
    settings = Settings(executor="local")
    for piece in (PLAIN.slice(2), PLAIN.slice(1, 1)):
        catalog.append("t", piece)
        compact("t", delta_catalog_client=catalog, settings=settings, compacted_file_content_type=content_type)
    state = catalog.state("t", catalog.partitions("t")[0])
    assert {file.content_type for file in state.compacted.files} == {content_type}
    assert catalog.read("t").sort_by("id").equals(PLAIN)


def test_nested_columns_cannot_become_csv():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1], "items": [[1, 2]]}))
    with pytest.raises(deltacompact.InputError, match=r"column 'items' is .*, which \.csv files cannot hold"):
        compact(
            "t", delta_catalog_client=catalog, compacted_file_content_type="csv", settings=Settings(executor="local")
        )


def test_a_file_without_rows_and_one_without_columns():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", [PLAIN.slice(0, 0), PLAIN])
    compact("t", delta_catalog_client=catalog, settings=Settings(executor="local"))
    assert catalog.read("t").num_rows == 4


def test_row_groups_and_dictionaries_of_written_files():
    """Row groups of the size asked for; a dictionary only where values repeat."""
    store = MemoryStore()
    rows = 5_000
    places = [7_919 * row % 600 for row in range(rows)]  # each three times in a row group, far apart
    table = pa.table({"id": range(rows), "status": ["new", "paid"] * (rows // 2), "place": places})
    writing.write_table(store, "x.parquet", table, WriteOptions(row_group_rows=2_000))
    metadata = pq.ParquetFile(pa.BufferReader(store.get("x.parquet"))).metadata
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [2_000, 2_000, 1_000]
    encodings = {
        metadata.row_group(0).column(n).path_in_schema: metadata.row_group(0).column(n).encodings for n in range(3)
    }
    assert "RLE_DICTIONARY" in encodings["status"] and "RLE_DICTIONARY" in encodings["place"]
    assert "RLE_DICTIONARY" not in encodings["id"]


def test_dictionaries_of_one_table_become_one():
    """pyarrow writes values, not indices, where a chunk has another dictionary than the first."""
    store = MemoryStore()
    words = [pa.array([f"{name} {' ' * 30}"] * 5_000).dictionary_encode() for name in ("new", "paid")]
    writing.write_table(store, "x.parquet", pa.table({"word": pa.chunked_array(words)}), WriteOptions(codec="none"))
    assert len(store.get("x.parquet")) < 10_000


@pytest.mark.slow
def test_strings_of_more_than_two_gigabytes_in_a_column():
    """32-bit offsets end at 2 GiB: files of one column that exceed it together are folded all the same."""
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    rows, width, count = 130, 1 << 20, 17
    text = pa.array(["x" * width]).take(pa.array([0] * rows))
    for place in range(count):
        catalog.append("t", pa.table({"id": range(place * rows, (place + 1) * rows), "text": text}))
    assert rows * width * count > 2**31
    (session,) = compact("t", delta_catalog_client=catalog, settings=Settings(executor="local")).sessions
    assert session.live == rows * count
