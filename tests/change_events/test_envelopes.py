"""Messages of Debezium and Maxwell as their documentation shows them, and of a database that changes."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import json
import uuid

import fastavro
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import problems

from deltacompact import DeltaStreamCatalog, InputError, SchemaError, cli, open_catalog
from deltacompact.storage.memory import MemoryStore

SCHEMA = {
    "type": "struct",
    "fields": [
        {
            "type": "struct",
            "fields": [
                {"type": "int32", "optional": False, "default": 0, "field": "id"},
                {"type": "string", "optional": True, "default": '"payload":{', "field": "name"},
            ],
            "optional": True,
            "name": "dbserver1.inventory.customers.Value",
            "field": "after",
        },
        {"type": "string", "optional": False, "field": "op"},
    ],
    "optional": False,
    "name": "dbserver1.inventory.customers.Envelope",
}
SOURCE = {"version": "3.0.5.Final", "connector": "postgresql", "db": "inventory", "table": "customers", "xmin": None}


def message(op, before, after, lsn, ts_ms=1714000000142):
    source = SOURCE | {"lsn": lsn, "ts_ms": ts_ms - 100, "snapshot": "last" if op == "r" else "false"}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": ts_ms, "transaction": None}


ANN, BOB = {"id": 1, "name": "Ann", "day": "2026-11-01"}, {"id": 2, "name": "Bob", "day": "2026-11-01"}
MESSAGES = [
    message("r", None, ANN, 10),
    message("c", None, BOB, 11),
    message("u", None, ANN | {"name": "Anna"}, 12),
    message("d", {"id": 2, "name": "", "day": None}, None, 13),
    None,
    message("u", BOB | {"id": 3}, BOB | {"id": 4}, 14),
]
DECIMAL = decimal.Decimal("1" * 60 + ".5")
HELD = [(1, "Anna", 12), (4, "Bob", 14)]


def written(path, messages, *, with_schema=False, between="\n"):
    if with_schema:
        messages = [message and {"schema": SCHEMA, "payload": message} for message in messages]
    text = between.join(json.dumps(message) for message in messages)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture
def catalog(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"], sort_keys=["lsn"])
    return catalog


def held(catalog):
    return sorted((row["id"], row["name"], row["lsn"]) for row in catalog.read("t").to_pylist())


@pytest.mark.parametrize("with_schema", [False, True])
@pytest.mark.parametrize(("name", "between"), [("a.json", "\n"), ("a.jsonl.gz", "\r\n\n \n")])
def test_debezium_files(catalog, tmp_path, name, between, with_schema):
    path = written(tmp_path / name, MESSAGES, with_schema=with_schema, between=between)
    appended = catalog.append_files("t", path, format="debezium")
    assert [(delta.operation, delta.rows) for delta in appended.deltas] == [("delete", 2), ("upsert", 2)]
    assert held(catalog) == HELD
    catalog.append_files("t", path, format="debezium")  # the same again: nothing changes
    assert held(catalog) == HELD
    written(tmp_path / "late.json", [message("u", None, BOB, 12)])  # before the delete at 13
    catalog.append_files("t", tmp_path / "late.json", format="debezium")
    assert held(catalog) == HELD


def frames():
    said = [message for message in MESSAGES if message]
    return {
        "Arrow": pa.Table.from_pylist(said),
        "pandas": pd.DataFrame(said),
        "with a tombstone": pa.Table.from_pylist([said[0], dict.fromkeys(said[0]), *said[1:]]),
        "with schema": pa.Table.from_pylist([{"schema": None, "payload": message} for message in MESSAGES]),
    }


@pytest.mark.parametrize("form", list(frames()))
def test_debezium_frames(catalog, form):
    catalog.append("t", frames()[form], format="debezium")
    assert held(catalog) == HELD


def test_debezium_parquet(catalog, tmp_path):
    pq.write_table(frames()["Arrow"], tmp_path / "a.parquet")
    catalog.append_files("t", tmp_path / "a.parquet", format="debezium")
    assert held(catalog) == HELD


ROW = {
    "type": "record",
    "name": "Value",
    "namespace": "shop.customers",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
        {"name": "paid", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}]},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "shop.customers.Value"]},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}


def test_debezium_avro(catalog, tmp_path, capsys):
    more = {"day": 7, "paid": decimal.Decimal("1.50"), "tags": {"a": "b"}}
    rows = [
        message | {field: message[field] and message[field] | more for field in ("before", "after")}
        for message in MESSAGES
        if message
    ]
    (tmp_path / "topic").mkdir()
    with open(tmp_path / "topic" / "t+0+0.avro", "wb") as file:
        fastavro.writer(file, ENVELOPE, rows)
    told = ["append", str(tmp_path / "lake"), "t", str(tmp_path / "topic"), "--format", "debezium"]
    assert cli.run(told) == 0
    assert held(catalog) == HELD
    types = {field.name: str(field.type) for field in catalog.read("t").schema}
    assert types == {
        "id": "int32",
        "name": "string",
        "day": "int32",
        "paid": "decimal128(5, 2)",
        "tags": "map<string, string>",
        "lsn": "int64",
    }
    assert cli.run(told[:-2]) == 2  # without a format, there is no data file
    path = tmp_path / "topic" / "t+0+0.avro"
    path.write_bytes(path.read_bytes().replace(b"\x14avro.codec\x08null", b"\x14avro.codec\x0csnappy", 1))
    capsys.readouterr()
    assert cli.run(told) == 2
    assert "t+0+0.avro is compressed by snappy, which needs cramjam: pip install cramjam" in capsys.readouterr().err
    path.write_bytes(b"Obj\1no")
    capsys.readouterr()
    assert cli.run(told) == 2
    assert "t+0+0.avro cannot be read as Avro: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lsn", "__lsn", "ts_ms", "__source_ts_ms", "source_ts_ms"])
def test_sort_keys_come_from_the_message(name):
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"], sort_keys=[name])
    catalog.append("t", pa.Table.from_pylist([message("c", None, ANN, 7, 1000)]), format="debezium")
    expected = {"lsn": 7, "__lsn": 7, "ts_ms": 1000}.get(name, 900)
    assert catalog.read("t")[name].to_pylist() == [expected]
    whole = dict.fromkeys(ANN) | {"id": 1}
    catalog.append("t", pa.Table.from_pylist([message("d", whole, None, 6, 999)]), format="debezium")  # late
    assert catalog.read("t").num_rows == 1
    gone = whole if name == "ts_ms" else {"id": 1}
    catalog.append("t", pa.Table.from_pylist([message("d", gone, None, 8, 1001)]), format="debezium")
    assert catalog.read("t").num_rows == 0


@pytest.mark.parametrize("form", ["one file", "snapshot first", "snapshot last"])
@pytest.mark.parametrize(("format", "reads"), [("debezium", "r"), ("maxwell", "bootstrap-insert")])
def test_a_row_of_a_snapshot_may_lack_a_part_of_its_position(tmp_path, format, reads, form):
    """SQL Server's snapshot rows have no number in their transaction. Null loses to every change of that position."""

    def said(kind, key, version, lsn, number):
        row, place = {"id": key, "version": version}, {"commit_lsn": lsn, "event_serial_no": number}
        if format == "maxwell":
            return {"type": kind, "data": row, **place}
        return {"op": kind, "before": None, "after": row, "source": place}

    update = "update" if format == "maxwell" else "u"
    snapshot = [said(reads, key, 0, "05", None) for key in (1, 2, 3)]
    changes = [said(update, 1, 1, "06", 2), said(update, 2, 1, "05", 1)]
    table = open_catalog(tmp_path / "lake").create_table(
        "t", primary_keys=["id"], sort_keys=["commit_lsn", "event_serial_no"]
    )
    batches = {"one file": [snapshot + changes], "snapshot first": [snapshot, changes]}.get(form, [changes, snapshot])
    for number, batch in enumerate(batches):
        table.append_files(str(written(tmp_path / f"{number}.json", batch)), format=format)
    rows = table.read(columns=["id", "version", "event_serial_no"]).sort_by("id")
    assert [tuple(row.values()) for row in rows.to_pylist()] == [(1, 1, 2), (2, 1, 1), (3, 0, None)]
    table.compact()
    assert table.read(columns=rows.column_names).sort_by("id") == rows
    for kind, lsn in ((reads, None), (update, "07")):
        bad = written(tmp_path / "bad.json", [said(reads, 4, 0, "08", None), said(kind, 5, 0, lsn, None)])
        with pytest.raises(InputError, match=r"line 2: the message has no '(commit_lsn|event_serial_no)', a sort key"):
            table.append_files(str(bad), format=format)


@pytest.mark.parametrize("sort_keys", [["ts", "xid"], ["xid", "ts"]])
def test_rows_of_a_snapshot_may_lack_the_field_of_a_part_of_their_position(tmp_path, sort_keys):
    """Maxwell's bootstrap has no xid at all. A file with an update beside it was taken, one without was refused."""
    read = [{"type": "bootstrap-insert", "ts": 5, "data": {"id": key, "v": 0}} for key in (1, 2)]
    begun = {"type": "bootstrap-start", "ts": 5, "data": {}}
    changed = {"type": "update", "ts": 5, "xid": 7, "data": {"id": 1, "v": 1}, "old": {"v": 0}}
    table = open_catalog(tmp_path / "lake").create_table("t", primary_keys=["id"], sort_keys=sort_keys)
    for number, batch in enumerate(([begun, *read], [changed], read)):
        table.append_files(str(written(tmp_path / f"{number}.json", batch)), format="maxwell")
    for is_compacted in (False, True):
        if is_compacted:
            table.compact()
        rows = table.read(columns=["id", "v", "ts", "xid"]).sort_by("id").to_pylist()
        assert [tuple(row.values()) for row in rows] == [(1, 1, 5, 7), (2, 0, 5, None)]
    gone = {"type": "delete", "ts": 6, "data": {"id": 2, "v": 0}}
    without = [{key: value for key, value in message.items() if key != "ts"} for message in read]
    for batch in (without, [*read, changed | {"xid": None}], [*read, gone]):
        lines = [{key: value for key, value in message.items() if value is not None} for message in batch]
        with pytest.raises(InputError, match=r"sort key '(xid|ts)' is neither a field of the rows nor of the messages"):
            table.append_files(str(written(tmp_path / "bad.json", lines)), format="maxwell")


def test_a_delete_does_not_trust_the_old_rows_own_sort_key():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"], sort_keys=["updated"])
    catalog.append("t", pa.Table.from_pylist([message("c", None, ANN | {"updated": 5}, 1)]), format="debezium")
    gone = message("d", {"id": 1, "name": "", "day": "", "updated": 0}, None, 2)  # PostgreSQL had the key only
    catalog.append("t", pa.Table.from_pylist([gone]), format="debezium")
    assert catalog.read("t").num_rows == 0


def test_json_takes_the_types_of_the_stream(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    types = pa.schema([("id", pa.int32()), ("name", pa.large_string()), ("born", pa.date32()), ("paid", pa.float64())])
    catalog.append("t", pa.table({"id": [9], "name": ["Eve"], "born": [None], "paid": [0.5]}, schema=types))
    rows = [{"id": 1, "name": "2026-01-01T00:00:00", "born": "1990-02-03", "paid": 2}]
    messages = [message("c", None, row, 1) for row in rows]
    for name, with_schema in (("a.json", False), ("b.json", True)):
        path = written(tmp_path / name, messages, with_schema=with_schema)
        catalog.append_files("t", path, format="debezium", schema_mode="fixed")
        delta = catalog.state("t", catalog.partitions("t")[0]).deltas[-1]
        assert delta.files[0].schema == types
    assert str(catalog.read("t", filter=[("id", "=", 1)])["born"][0]) == "1990-02-03"


@pytest.mark.parametrize("maxwell", [False, True])
@pytest.mark.parametrize("with_schema", [False, True])
def test_texts_that_look_like_times_stay_texts(tmp_path, maxwell, with_schema):
    """They became times in a table's first batch: two keys were one, and any other text blocked the stream."""
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["code"])
    rows = [
        {"code": "2026-11-29", "v": "2026-11-29T10:00:00Z", "more": ["2026-11-29"], "of": {"at": "2026-11-29"}},
        {"code": "2026-11-29 00:00", "v": "2026-11-29", "more": [], "of": {"at": None}},
        {"code": "A-1", "v": "soon", "more": ["never"], "of": {"at": "once"}},
    ]
    for number, batch in enumerate([rows[:2], rows[2:]]):
        messages = [said(maxwell, "c", None, row, number) for row in batch]
        path = written(tmp_path / f"{number}.json", messages, with_schema=with_schema and not maxwell)
        catalog.append_files("t", path, format="maxwell" if maxwell else "debezium")
    assert catalog.read("t").to_pylist() == rows


def test_sort_keys_and_declared_columns_are_times_still(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    columns = "id long, born date, seen timestamp"
    catalog.create_table("t", primary_keys=["id"], sort_keys=["updated"], columns=columns)
    row = {"id": 1, "born": "1990-02-03", "seen": "2026-11-29T10:00:00.5", "updated": "2026-11-29T10:00:00Z"}
    rows = [row, row | {"updated": "2026-11-29T10:00:00.5Z", "born": None}]  # as texts, the second would be smaller
    for number, changed in enumerate(rows):
        path = written(tmp_path / f"{number}.json", [message("c", None, changed, number)])
        catalog.append_files("t", path, format="debezium")
    kept = catalog.read("t")
    assert kept["born"].to_pylist() == [None]
    assert [str(kept.schema.field(name).type)[:9] for name in ("born", "seen", "updated")] == [
        "date32[da",
        "timestamp",
        "timestamp",
    ]


def avro_record(name, fields):
    return {"type": "record", "name": name, "fields": [{"name": field, "type": type_} for field, type_ in fields]}


ZONED = ["2026-11-29T10:00:00Z", "2026-11-29T12:30:00.5+02:00", "2026-11-29T10:30:00.51Z", "2026-11-29T10:30:00.6Z"]


@pytest.mark.parametrize("form", ["json", "schema", "avro"])
@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["9999999", "10000001", "10000002", "18446744073709551616"], pa.decimal128(38, 0)),
        ([None, "9999999", "10000001", "10000002"], pa.decimal128(38, 0)),
        (ZONED, pa.timestamp("us", "UTC")),
        ([text[:19] + text[19:].rstrip("Z") for text in (ZONED[0], *ZONED[2:], "2026-11-30")], pa.timestamp("us")),
    ],
)
@pytest.mark.parametrize("of_message", [True, False])
def test_sort_keys_that_are_texts_are_in_the_order_of_what_they_say(tmp_path, form, values, type_, of_message):
    """As texts "9999999" is above "10000001": the older row won, and a delete did nothing."""
    if of_message and values[0] is None:
        return  # refused: a message must have it
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"], sort_keys=["scn"])

    def said(op, before, after, value):
        own = {} if of_message else {"scn": value}
        rows = [row and row | own for row in (before, after)]
        return dict(zip(("before", "after"), rows, strict=True)) | {"op": op, "source": {"scn": value}}

    first = [said("c", None, {"id": 1, "v": "old"}, values[0]), said("c", None, {"id": 2, "v": "old"}, values[0])]
    then = [said("u", None, {"id": 1, "v": "new"}, values[1]), said("d", {"id": 2, "v": None}, None, values[2])]
    late = [said("u", None, {"id": 1, "v": "newest"}, values[3])]
    for number, batch in enumerate([first, then, late]):
        if form == "avro":
            path = tmp_path / f"{number}.avro"
            text = ["null", "string"]
            own = [("id", "int"), ("v", text), *([] if of_message else [("scn", text)])]
            row, source = avro_record("row", own), avro_record("source", [("scn", text)])
            fields = [("before", ["null", row]), ("after", ["null", "row"]), ("op", "string"), ("source", source)]
            with path.open("wb") as out:
                fastavro.writer(out, avro_record("message", fields), batch)
        else:
            path = written(tmp_path / f"{number}.json", batch, with_schema=form == "schema")
        appended = catalog.append_files("t", path, format="debezium")
        assert not appended.compared_as_texts
        types = {file.schema.field("scn").type for file in appended.files if "scn" in file.schema.names}
        assert types <= {type_ if number or values[0] else pa.null()}
    assert [(row["id"], row["v"]) for row in catalog.read("t").to_pylist()] == [(1, "newest")]


@pytest.mark.parametrize("values", [ZONED, [text.replace("Z", "") for text in ZONED if "Z" in text]])
def test_times_of_messages_go_on_in_a_table_that_has_them_without_zone_or_fractions(tmp_path, values):
    catalog = open_catalog(tmp_path / "lake")
    columns = pa.schema([("id", pa.int64()), ("at", pa.timestamp("s"))])
    catalog.create_table("t", primary_keys=["id"], sort_keys=["at"], columns=columns)
    for number, value in enumerate(values):
        said = {"op": "c", "after": {"id": 1}, "source": {"at": value}}
        catalog.append_files("t", written(tmp_path / f"{number}.json", [said]), format="debezium")
    assert catalog.read("t")["at"].to_pylist() == [datetime.datetime(2026, 11, 29, 10, 30, 0, 600000)]


def test_a_number_that_is_wider_than_its_column_is_told_what_helps(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    for number, price in enumerate([10, 10.5]):
        said = {"type": "insert", "data": {"id": number, "price": price}}
        path = written(tmp_path / f"{number}.json", [said])
        if not number:
            catalog.append_files("t", path, format="maxwell")
    with pytest.raises(InputError, match=r"line 1: column 'price' is int64 .*, and 10\.5 is not: declare a wider type"):
        catalog.append_files("t", path, format="maxwell")


@pytest.mark.parametrize("with_schema", [True, False])
@pytest.mark.parametrize(
    ("type_", "good", "bad", "said"),
    [
        ("date", "2024-01-01", 19723, "v' is date32[day] in earlier rows or files, and 19723 is not"),
        ("timestamp", "2024-01-01 00:00:00.5", 1704067200123456, "is not"),
        ("boolean", True, 1, "v' is bool in earlier rows or files, and 1 is not"),
        ("long", 1, "x", "v' is int64 in earlier rows or files, and 'x' is not"),
        ("string", "x", 1, "v' is string in earlier rows or files, and 1 is not"),
        ("decimal(10,2)", "1.50", "AfQ=", "v' is decimal128(10, 2) in earlier rows or files, and 'AfQ=' is not"),
    ],
)
def test_a_value_that_is_not_of_its_declared_type_is_named_with_it(tmp_path, type_, good, bad, said, with_schema):
    """Debezium has dates as days, times as microseconds, booleans as 0 and 1, and decimals in base64."""
    table = open_catalog(tmp_path / "lake").create_table(
        "t", primary_keys=["id"], sort_keys=["lsn"], columns=f"v {type_}, lsn long"
    )
    messages = [message("c", None, {"id": id_, "at": "2024-01-01", "v": v}, id_) for id_, v in ((1, good), (2, bad))]
    for name, lines, line in (("both.json", messages, 2), ("bad.json", messages[1:], 1)):
        path = written(tmp_path / name, lines, with_schema=with_schema)
        with pytest.raises(InputError) as raised:
            table.append_files(path, format="debezium")
        assert f"{name}, line {line}: column 'v" in str(raised.value) and said in str(raised.value)
    too_far = written(tmp_path / "far.json", [message("c", None, {"id": 1, "v": good}, 2**64)], with_schema=with_schema)
    with pytest.raises(InputError, match=f"line 1: column 'lsn' is int64 in earlier rows or files, and {2**64} is not"):
        table.append_files(too_far, format="debezium")


def test_sort_keys_that_stay_texts_are_said(tmp_path, capsys):
    """Versions, decimals in base64, and columns that an earlier release made strings."""
    catalog = open_catalog(tmp_path / "lake")
    for number, (columns, value) in enumerate([(None, "1.10"), ("id long, at string", "10"), (None, "010")]):
        catalog.create_table(f"t{number}", primary_keys=["id"], sort_keys=["at"], columns=columns)
        path = written(tmp_path / f"{number}.json", [message("c", None, {"id": 1, "at": value}, 1)])
        assert cli.run(["append", str(tmp_path / "lake"), f"t{number}", str(path), "--format", "debezium"]) == 0
        assert "sort key 'at' has texts, which are compared byte by byte" in capsys.readouterr().out
        assert catalog.read(f"t{number}")["at"].to_pylist() == [value]
    catalog.create_table("sql_server", primary_keys=["id"], sort_keys=["commit_lsn"])
    said = message("c", None, {"id": 1}, 1) | {"source": {"commit_lsn": "00000027:00000758:0005"}}
    appended = catalog.append_files("sql_server", written(tmp_path / "s.json", [said]), format="debezium")
    assert appended.compared_as_texts == ()


@pytest.mark.parametrize("name", ["lsn", "__source_lsn"])
@pytest.mark.parametrize("with_schema", [True, False])
@settings(deadline=None, max_examples=examples(8))
@given(position=st.integers(2**53, 2**64 - 2))
def test_a_position_beyond_int64_is_exact_if_it_is_declared_a_decimal(tmp_path_factory, name, with_schema, position):
    """A double beside it makes doubles of all."""
    folder = tmp_path_factory.mktemp("lake")
    table = open_catalog(folder / "lake").create_table(
        "t", primary_keys=["id"], sort_keys=[name], columns=f"{name} decimal(20,0)"
    )
    lsns = (position + 1, position, 2**64 - 1)
    messages = [message("u", None, {"id": key}, lsn) for key, lsn in zip((1, 1, 2), lsns, strict=True)]
    table.append_files(str(written(folder / "a.json", messages, with_schema=with_schema)), format="debezium")
    assert table.read(columns=[name]).to_pydict() == {name: [position + 1, 2**64 - 1]}


@pytest.mark.parametrize("type_", ["long", "decimal(12, 2)"])
def test_texts_in_a_sort_key_that_is_declared_a_number_are_numbers(tmp_path, type_):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"], sort_keys=["at"], columns=f"id long, at {type_}")
    for number, value in enumerate(["9", "10"]):
        path = written(tmp_path / f"{number}.json", [message("c", None, {"id": 1, "at": value}, 1)])
        catalog.append_files("t", path, format="debezium")
    assert [str(value) for value in catalog.read("t")["at"].to_pylist()] == ["10" if type_ == "long" else "10.00"]
    path = written(tmp_path / "other.json", [message("c", None, {"id": 1, "at": "soon"}, 1)])
    with pytest.raises(SchemaError, match=r"column 'at' does not fit .*declare a wider type, or string"):
        catalog.append_files("t", path, format="debezium")


@settings(max_examples=examples(60))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from("cud"), st.integers(1, 4), st.integers(1, 4), st.sampled_from(["1", "2"])),
        max_size=20,
    ),
    cut=st.integers(0, 20),
    sorted_=st.booleans(),
    partitioned=st.booleans(),
    maxwell=st.booleans(),
    shuffled=st.randoms(use_true_random=False),
)
def test_a_database_and_its_messages(tmp_path_factory, steps, cut, sorted_, partitioned, maxwell, shuffled):
    """Rows change, change their key, and move between partitions; the table holds what the database holds."""
    rows, messages = dict[int, dict](), list[dict | None]()
    for place, (step, old, new, day) in enumerate(steps):
        lsn, row = place + 1, {"id": new, "day": day, "v": place}
        before = rows.get(old)
        if step == "c" and new not in rows:
            messages.append(said(maxwell, "c", None, row, lsn))
            rows[new] = row
        elif step == "u" and before and (new == old or new not in rows):
            messages.append(said(maxwell, "u", before, row, lsn))
            del rows[old]
            rows[new] = row
        elif step == "d" and before:
            messages += [said(maxwell, "d", before, None, lsn), None]
            del rows[old]
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"] if partitioned else [], ["id"], ["lsn"] if sorted_ else [])
    folder = tmp_path_factory.mktemp("cdc")
    parts = [written(folder / "a.json", messages[:cut]), written(folder / "b.json", messages[cut:])]
    if sorted_:
        shuffled.shuffle(parts)
    format_ = "maxwell" if maxwell else "debezium"
    for path in parts:
        catalog.append_files("t", path, format=format_)
    found = catalog.read("t").to_pylist() if catalog.partitions("t") else []
    expected = sorted((row["id"], row["day"], row["v"]) for row in rows.values())
    assert sorted((row["id"], row["day"], row["v"]) for row in found) == expected
    assert not problems(catalog, "t")


def said(maxwell, op, before, after, lsn):
    if not maxwell:
        return message(op, before, after, lsn)
    what = {"database": "test", "table": "e", "ts": 1477053217, "xid": 23396, "lsn": lsn}
    if op == "u":
        old = {name: value for name, value in before.items() if value != after[name]}
        return what | {"type": "update", "data": after, "old": old}
    return what | {"type": {"c": "insert", "d": "delete"}[op], "data": after or before}


def test_maxwell_bootstraps(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    whole = {"database": "test", "table": "e", "ts": 1450557744}
    messages = [
        whole | {"type": "bootstrap-start", "data": {}},
        whole | {"type": "bootstrap-insert", "data": {"id": 1, "m": 4.5}},
        whole | {"type": "bootstrap-complete", "data": {}},
    ]
    appended = catalog.append_files("t", written(tmp_path / "a.json", messages), format="maxwell")
    assert [(delta.operation, delta.rows) for delta in appended.deltas] == [("upsert", 1)]
    assert catalog.read("t").to_pylist() == [{"id": 1, "m": 4.5}]
    for without_rows in ({"data": {}}, {}):
        written(tmp_path / "b.json", [whole | {"type": "table-alter", "def": {}} | without_rows])
        with pytest.raises(InputError, match=r"b.json, line 1: operation 'table-alter' is refused: it changes"):
            catalog.append_files("t", tmp_path / "b.json", format="maxwell")


GOOD = json.dumps(message("c", None, ANN, 1))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([GOOD, "", '{"op": "c", "after"'], "a.json, line 3 is no JSON, as each line must be ("),
        ([GOOD, '{"op": ' + "[" * 9_999], "a.json, line 2 is no JSON, as each line must be (maximum recursion depth"),
        ([GOOD, "[1]"], "a.json, line 2 is no JSON object, as each line must be: [1]"),
        ([GOOD, f"{GOOD} {GOOD}"], "a.json, line 2 is no JSON, as each line must be (Extra data"),
        ([f"{GOOD} {GOOD}"], "a.json, line 1 is no JSON, as each line must be (Extra data"),
        ([GOOD, "null", GOOD.replace("Ann", "\xff")], "a.json, line 3 is not UTF-8: byte 0xff"),
        ([GOOD, "7"], "a.json, line 2 is no JSON object, as each line must be: 7"),
        (['{"op": null, "after": {"id": 1}}'], "a.json, line 1: operation None is neither an upsert (c, r, u)"),
        (['{"op": 1, "after": {"id": 1}}'], "a.json, line 1: operation '1' is neither an upsert (c, r, u)"),
        (
            [GOOD, "null", message("x", None, ANN, 2)],
            "a.json, line 3: operation 'x' is neither an upsert (c, r, u)",
        ),
        ([GOOD, {"after": ANN}], "a.json, line 2: operation None is neither"),
        (
            [GOOD, message("t", None, None, 2)],
            "a.json, line 2: operation 't' is refused: it empties the table",
        ),
        (
            ["null", {"op": "t", "source": {"lsn": 2}, "ts_ms": 3}],
            "a.json, line 2: operation 't' is refused: it empties the table",
        ),
        ([{"id": 1, "__op": "c"}], "a.json: the messages have no field 'op' (columns: id, __op): they are not of this"),
        (
            [GOOD, message("d", None, None, 2)],
            "a.json, line 2: operation 'd' has no row in 'before': without it",
        ),
        ([GOOD, message("u", ANN, None, 2)], "a.json, line 2: operation 'u' has no row in 'after'"),
        (
            [message("c", None, {"name": "Ann"}, 1)],
            "line 1: 'after' has no field 'id', a key of the table (fields",
        ),
        (
            [GOOD, message("c", None, {"id": None}, 1)],
            "a.json, line 2: field 'id' in 'after', a key of the table",
        ),
        ([GOOD, message("d", {"name": "Ann"}, None, 1)], "a.json, line 2: 'before' has no field 'id', a key of"),
        ([GOOD, message("u", None, ANN, None)], "a.json, line 2: the message has no 'lsn', a sort key"),
        ([{"op": "c", "after": ANN}], "a.json: sort key 'lsn' is neither a field of the rows nor of the messages"),
        (
            [GOOD, message("u", None, ANN | {"name": "__debezium_unavailable_value"}, 3)],
            "a.json, line 2: column 'name' is __debezium_unavailable_value: PostgreSQL did not say its value, and an",
        ),
        (
            [message("c", None, ANN | {"id": 2**53}, 2), message("c", None, ANN | {"id": 2**64 - 1}, 3)],
            "a.json, line 1: key column 'id' is read as double",
        ),
        ([GOOD, message("d", ANN, None, 2**64 - 1)], "a.json, line 2: key column 'lsn' is read as double"),
        (
            [GOOD, message("c", None, ANN | {"name": 7}, 2)],
            "a.json, line 2 cannot be read: JSON parse error: Column(/after/name)",
        ),
    ],
)
def test_bad_messages_are_named_and_commit_nothing(catalog, tmp_path, lines, said):
    objects = {stat.path for stat in catalog.store.list("")}
    lines = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (tmp_path / "a.json").write_text("\n".join(lines), "latin-1")
    with pytest.raises(InputError) as error:
        catalog.append_files("t", tmp_path / "a.json", format="debezium")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert {stat.path for stat in catalog.store.list("")} == objects


def test_a_known_double_key_takes_no_whole_number_that_it_cannot_tell_apart(tmp_path):
    """The messages alone are exact int64. As doubles, two of them were one key, and a row was lost."""
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1.5]}))
    path = written(tmp_path / "a.json", [message("c", None, {"id": id_}, 1) for id_ in (7, 2**53, 2**53 + 1)])
    with pytest.raises(InputError, match="line 2: key column 'id' is read as double"):
        catalog.append_files("t", path, format="debezium")


@pytest.mark.parametrize("keys", [(), ("day",)])
@pytest.mark.parametrize("options", [{"format": "maxwell"}, {"operation_column": "op"}, {}])
def test_files_of_events_are_not_referred_to_and_the_advice_can_be_followed(tmp_path, keys, options):
    table = open_catalog(tmp_path / "lake").create_table("t", keys, primary_keys=["id"])
    (path := tmp_path / "a.csv").write_text("id,op\n1,I\n")
    if options or keys:
        helps = "leave reference out" if options else "name the partition, or leave reference out"
        with pytest.raises(InputError, match=f"belong to one partition and have one operation: {helps}"):
            table.append_files(path, reference=True, **options)


def test_an_update_that_moves_a_row_without_one_of_its_keys_is_named(tmp_path):
    """A KeyError, without a word of ours."""
    table = open_catalog(tmp_path / "lake").create_table("t", primary_keys=["tenant", "ID"])
    change = message("u", {"tenant": "a", "id": 1}, {"tenant": "b", "id": 1}, 1)
    with pytest.raises(InputError, match=r"a\.json, line 1: 'after' has no field 'ID', a key of the table"):
        table.append_files(written(tmp_path / "a.json", [change]), format="debezium")


def test_a_delete_without_its_partition_is_named(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", ["day"], ["id"])
    path = written(tmp_path / "a.json", [message("c", None, ANN, 1), message("d", {"id": 1, "day": None}, None, 2)])
    with pytest.raises(InputError, match=r"line 2: field 'day' in 'before', a partition key of the table, is null"):
        catalog.append_files("t", path, format="debezium")
    assert catalog.append_files("t", path, {"day": "2026-11-01"}, format="debezium").rows == 1


@pytest.mark.parametrize(
    ("type_", "value", "column"),
    [
        ({"type": "string", "logicalType": "uuid"}, str(uuid.UUID(int=5)), pa.string()),
        ({"type": "long", "logicalType": "timestamp-micros"}, 2**61, pa.timestamp("us", "UTC")),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, -(2**60), pa.timestamp("ms")),
        ({"type": "int", "logicalType": "date"}, 2**30, pa.date32()),
        ({"type": "array", "items": {"type": "int", "logicalType": "date"}}, [2**30], pa.list_(pa.date32())),
        ({"type": "int", "logicalType": "time-millis"}, datetime.time(1, 2, 3, 4_000), pa.time64("us")),
        # Kafka Connect says 64 digits of a decimal whose precision it does not know.
        ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 1}, DECIMAL, pa.decimal256(64, 1)),
    ],
)
def test_values_of_avro_that_python_lacks_are_as_they_are_stored(catalog, tmp_path, type_, value, column):
    """One date behind the year 9999, one UUID or long decimal, and the whole file was refused."""
    row = ROW | {"fields": [ROW["fields"][0], {"name": "v", "type": ["null", type_]}]}
    envelope = ENVELOPE | {"fields": [{"name": "before", "type": ["null", row]}, *ENVELOPE["fields"][1:]]}
    with open(tmp_path / "a.avro", "wb") as file:
        rows = [{"id": 1, "v": value}, {"id": 2, "v": None}]
        fastavro.writer(file, envelope, [message("c", None, after, 1) for after in rows])
    catalog.append_files("t", tmp_path / "a.avro", format="debezium")
    read = catalog.read("t").sort_by("id")["v"].combine_chunks()
    assert read.equals(pa.array([value, None], column))


@pytest.mark.parametrize("text", ["", "\n\n", "null\nnull\n"])
def test_files_without_messages(catalog, tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    appended = catalog.append_files("t", tmp_path / "a.json", format="debezium")
    assert (appended.committed, appended.commits, appended.position) == (False, (), None)
    assert appended.skipped == "there is no row"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("string", "a.avro: the Avro file must hold records"),
        ({"type": "record", "name": "R", "fields": [{"name": "op", "type": ["string", "int"]}]}, "'op' is a union of"),
    ],
)
def test_avro_files_that_hold_no_messages(catalog, tmp_path, schema, said):
    with open(tmp_path / "a.avro", "wb") as file:
        fastavro.writer(file, schema, ["c"] if schema == "string" else [{"op": "c"}])
    with pytest.raises(InputError, match=said):
        catalog.append_files("t", tmp_path / "a.avro", format="debezium")
    with pytest.raises(InputError, match=r"a\.avro: Avro files are taken as change events: .* \(--format, format=\)"):
        catalog.append_files("t", tmp_path / "a.avro")


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"name": "op", "type": "string"}, "a.avro is damaged: a block has more records than bytes"),
        ({"name": "op", "type": "null"}, "a.avro: the records have no field with a value"),
        ({"name": "op", "type": {"type": "array", "items": "null"}}, "field 'op' is an array of values without bytes"),
        ({"name": "op", "type": {"type": "fixed", "name": "f", "size": 0}}, "a.avro: the records have no field with"),
    ],
)
def test_avro_cannot_claim_more_records_than_it_has_bytes(catalog, tmp_path, field, said):
    """Their number filled the memory: one of 10^12 fits in a file of 100 bytes."""
    with open(tmp_path / "a.avro", "wb") as file:
        fastavro.writer(file, {"type": "record", "name": "R", "fields": [field]}, [], sync_marker=b"s" * 16)
        file.write(avro_long(10_000) + avro_long(2) + b"\x02c" + b"s" * 16)
    with pytest.raises(InputError, match=said):
        catalog.append_files("t", tmp_path / "a.avro", format="debezium")


def avro_long(number):
    fastavro.schemaless_writer(out := io.BytesIO(), "long", number)
    return out.getvalue()


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([message("d", {"id": 1, "r": "b"}, None, 3)], "line 1: field 'r' in 'before' is 'b', but the append names"),
        (
            [message("c", None, {"id": 2, "r": "a"}, 2), message("u", {"id": 1, "r": "b"}, {"id": 1, "r": "a"}, 3)],
            "line 2: field 'r' in 'before' is 'b', but the append names partition r=a: leave partition out",
        ),
    ],
)
def test_messages_of_another_partition_than_that_of_the_append_are_refused(tmp_path, messages, said):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", ["r"], ["id"])
    catalog.append("t", pa.table({"id": [1, 1], "r": ["a", "b"]}))
    path = written(tmp_path / "a.json", messages)
    with pytest.raises(InputError) as error:
        catalog.append_files("t", path, {"r": "a"}, format="debezium")
    assert said in str(error.value)
    assert catalog.read("t").num_rows == 2
    for unsaid in ({}, {"r": None}, {"r": "a"}):
        written(path, [message("d", {"id": 1} | unsaid, None, 3)])
        catalog.append_files("t", path, {"r": "a"}, format="debezium")
        assert catalog.read("t")["r"].to_pylist() == ["b"]


def of_table(table, **more):
    return message("c", None, ANN, 1) | {"source": SOURCE | {"lsn": 1, "table": table, **more}}


def of_maxwell(type_, table):
    return {"database": "d", "table": table, "type": type_, "data": {"id": 1, "lsn": 1}}


@pytest.mark.parametrize(
    ("format_", "files", "said"),
    [
        (
            "maxwell",
            [[of_maxwell("insert", "t"), of_maxwell("delete", "other")]],
            "0.json, line 2: the message is of source table d.other, but {}0.json, line 1 is of d.t: append the",
        ),
        (
            "debezium",
            [[of_table("t", schema="s"), None, of_table("t", schema="r")]],
            "0.json, line 3: the message is of source table inventory.r.t, but {}0.json, line 1 is of inventory.s.t",
        ),
        (
            "debezium",
            [[of_table(None), of_table("t")], [of_table("t"), of_table("u")]],
            "1.json, line 2: the message is of source table inventory.u, but {}0.json, line 2 is of inventory.t",
        ),
    ],
)
def test_messages_of_two_tables_are_refused(catalog, tmp_path, format_, files, said):
    paths = [written(tmp_path / f"{number}.json", messages) for number, messages in enumerate(files)]
    with pytest.raises(InputError) as error:
        catalog.append_files("t", paths, format=format_)
    assert said.format(f"{tmp_path}/") in str(error.value)
    assert not catalog.partitions("t")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([{"payload": "x"}], "a.json: field 'payload' is string, it must hold messages"),
        ([message("u", {"id": 1}, "x", 1)], "a.json: field 'after' is string, it must hold rows"),
        ([message("d", "x", None, 1)], "a.json: field 'before' is string, it must hold rows"),
        ([message("c", {"id": 1}, 7, 1)], "a.json: field 'after' is int64, it must hold rows"),
        ([message({"x": 1}, None, ANN, 1)], "a.json: field 'op' is struct<x: int64>, it must say an operation"),
        ([message(["m"], None, None, 1)], "a.json: field 'op' is list<item: string>, it must say an operation"),
        ([message("u", {"id": "x"}, ANN, 1)], "a.json: field 'id' is string in 'before' and int64 in 'after', it must"),
        ([message("u", {"id": 1.5}, ANN, 1)], "a.json: field 'id' is double in 'before' and int64 in 'after', it must"),
        ([message("u", {"id": [1]}, {"id": [2]}, 1)], "a.json: field 'id' is list<item: int64> in 'before' and list"),
    ],
)
def test_fields_that_are_of_no_use_are_named(catalog, tmp_path, lines, said):
    with pytest.raises(InputError) as error:
        catalog.append_files("t", written(tmp_path / "a.json", lines), format="debezium")
    assert said in str(error.value)


@pytest.mark.parametrize("source", [None, {"db": None, "table": None}, {"db": "d", "table": None}])
def test_a_message_may_say_nothing_of_its_table(catalog, tmp_path, source):
    """Arrow leaves a row out of what it joins if all of its parts are null."""
    told = of_table("t") | {"after": {"id": 2, "lsn": 1}}
    lines = [message("c", None, {"id": 1, "lsn": 1}, 1) | {"source": source}, told]
    catalog.append_files("t", written(tmp_path / "a.json", lines), format="debezium")
    assert sorted(catalog.read("t")["id"].to_pylist()) == [1, 2]
    lines.append(of_table("other"))
    with pytest.raises(InputError, match=r"line 3: the message is of source table inventory\.other"):
        catalog.append_files("t", written(tmp_path / "b.json", lines), format="debezium")


def test_logical_messages_of_postgresql_do_nothing(catalog, tmp_path):
    logical = {"op": "m", "ts_ms": 1, "source": SOURCE | {"table": ""}, "message": {"prefix": "p", "content": "YQ=="}}
    path = written(tmp_path / "a.json", [logical])
    assert catalog.append_files("t", path, format="debezium").skipped == "there is no row"
    catalog.append_files("t", written(path, [message("c", None, ANN, 1), logical]), format="debezium")
    assert held(catalog) == [(1, "Ann", 1)]
    catalog.append_files("t", written(path, [{"payload": None}]), format="debezium")
    assert held(catalog) == [(1, "Ann", 1)]


@pytest.mark.parametrize("with_insert", [False, True])
@pytest.mark.parametrize(
    ("sort_key", "row", "gone", "is_certain"),
    [
        ("ts_ms", {"id": 1, "ts_ms": 5_000_000_000_000}, {"id": 1}, False),
        ("ts_ms", {"id": 1, "ts_ms": 5_000_000_000_000}, {"id": 1, "ts_ms": None}, True),
        ("ts_ms", {"id": 1, "v": 1}, {"id": 1}, False),
        ("ts_ms", {"id": 1, "v": 1}, {"id": 1, "v": None}, True),
        ("__ts_ms", {"id": 1}, {"id": 1}, True),
        ("lsn", {"id": 1}, {"id": 1}, True),
        ("source_ts_ms", {"id": 1}, {"id": 1}, True),
        ("version", {"id": 1, "version": 7}, {"id": 1}, True),
    ],
)
def test_deletes_alone_decide_as_those_with_an_insert(tmp_path, sort_key, row, gone, is_certain, with_insert):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"], sort_keys=[sort_key])
    catalog.append_files("t", written(tmp_path / "a.json", [message("c", None, row, 1)]), format="debezium")
    events = [message("d", gone, None, 2, 1714000000143)]
    if with_insert:
        events.append(message("c", None, row | {"id": 2}, 3))
    path = written(tmp_path / "b.json", events)
    if is_certain or with_insert:
        catalog.append_files("t", path, format="debezium")
        assert catalog.read("t")["id"].to_pylist() == [2] * with_insert
        return
    with pytest.raises(InputError, match=r"b.json, line 1: 'before' has the key only.*call .* '__ts_ms' in the table"):
        catalog.append_files("t", path, format="debezium")


def test_only_a_schema_is_cut_off(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    inner = {"id": 1, "payload": {"a": 1}}
    other = json.loads(json.dumps(SCHEMA).replace("inventory", "stöck")) | {"default": {"payload": "x"}}
    messages = [
        {"schema": "public", "op": "c", "before": None, "after": inner},
        {"schema": SCHEMA, "payload": message("c", None, inner | {"id": 2}, 1)},
        {"schema": other, "payload": message("c", None, inner | {"id": 3}, 1)},
        {"schema": SCHEMA, "payload": message("c", None, inner | {"id": 4}, 1)},
        {"schema": None, "payload": message("c", None, inner | {"id": 5}, 1)},
    ]
    for wrapped in (messages[:1], messages[1:]):
        catalog.append_files("t", written(tmp_path / "a.json", wrapped), format="debezium")
    assert sorted(catalog.read("t")["id"].to_pylist()) == [1, 2, 3, 4, 5]
    path = written(tmp_path / "b.json", [messages[1], {"schema": {"a": 1}, "op": "c"}, {"schema": SCHEMA}])
    path.write_text(path.read_text() + '{"schema": {"type"')
    with pytest.raises(InputError, match=r"b.json, line 3 is no JSON|b.json, line 4 is no JSON"):
        catalog.append_files("t", path, format="debezium")
