"""Text that is appended to a table with columns of types that the parsers of JSON and CSV lack."""

import datetime

import pyarrow as pa
import pytest

from deltacompact.base.errors import InputError, SchemaError

TYPES = {
    "map": (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    "list of maps": (pa.list_(pa.map_(pa.string(), pa.int64())), [[("k", 1)]]),
    "list": (pa.list_(pa.int64()), [1]),
    "struct with a duration": (pa.struct([("d", pa.duration("s"))]), {"d": 1}),
    "duration": (pa.duration("us"), 1),
    "fixed size": (pa.binary(4), b"abcd"),
    "uuid": (pa.uuid(), bytes(16)),
    "time": (pa.time64("us"), datetime.time(1)),
}


@pytest.mark.parametrize("of", TYPES)
def test_rows_without_a_value_in_such_a_column(catalog, tmp_path, of):
    type_, value = TYPES[of]
    table = catalog.create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": [0], "v": pa.array([value], type_)}))
    texts = {"a.json": '{"id": 1}\n', "b.json": '{"id": 2, "v": null}\n', "c.csv": "id\n3\n", "d.csv": "id,v\n4,\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        table.append_files(tmp_path / name)
    for _ in range(2):
        rows = table.read().sort_by("id")
        assert [value is None for value in rows["v"].to_pylist()] == [False, True, True, True, True]
        assert table.check()
        table.compact()


@pytest.mark.parametrize(
    "type_, name, text, expected",
    [
        (pa.duration("s"), "a.json", '{"id": 1, "v": 7}\n', datetime.timedelta(seconds=7)),
        (pa.binary(4), "a.json", '{"id": 1, "v": "wxyz"}\n', b"wxyz"),
        (pa.time64("us"), "a.json", '{"id": 1, "v": "10:00:00.5"}\n', datetime.time(10, 0, 0, 500_000)),
        (pa.time32("s"), "a.json", '{"id": 1, "v": "10:00:00"}\n', datetime.time(10)),
        (pa.time32("s"), "a.json", '{"id": 1, "v": "10:00:00.5"}\n', datetime.time(10, 0, 0, 500_000)),
        (
            pa.time64("us"),
            "a.csv",
            "id,v\n1,10:00:00.500000000\n",
            datetime.time(10, 0, 0, 500_000),
        ),
        (pa.list_(pa.time32("s")), "a.json", '{"id": 1, "v": ["10:00:00", null]}\n', [datetime.time(10), None]),
    ],
)
def test_values_of_types_that_the_parser_lacks(catalog, tmp_path, type_, name, text, expected):
    table = catalog.create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": [0], "v": pa.nulls(1, type_)}))
    (tmp_path / name).write_text(text)
    table.append_files(tmp_path / name)
    table.compact()
    assert table.read(filter=[("id", "==", 1)])["v"].to_pylist() == [expected]


@pytest.mark.parametrize(
    "of, name, text, message",
    [
        ("map", "a.json", '{"id": 1, "v": {"k": 1}}\n', r"'v' is map<.*> in earlier .*JSON with a map .*Parquet"),
        ("list of maps", "a.json", '{"id": 1, "v": [{"k": 1}]}\n', r"'v' is list<.*JSON with a map .*Parquet"),
        ("list", "a.csv", "id,v\n1,[1]\n", r"'v' is nested in earlier files, and '\[1\]' in CSV .*JSON or Parquet"),
        ("time", "a.json", '{"id": 1, "v": "soon"}\n', r"'v' does not fit time64\[us\]: .*'soon'$"),
    ],
)
def test_what_text_cannot_hold_is_refused_by_name(catalog, tmp_path, of, name, text, message):
    type_, value = TYPES[of]
    table = catalog.create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": [0], "v": pa.array([value], type_)}))
    (tmp_path / name).write_text(text)
    with pytest.raises((InputError, SchemaError), match=message):
        table.append_files(tmp_path / name)


def test_finer_times_of_day_beside_the_year_9999(catalog, tmp_path):
    table = catalog.create_table("t", primary_keys=["id"])
    last, noon = datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime.time(12)
    known = {"until": pa.array([last], pa.timestamp("us")), "at": pa.array([noon], pa.time64("us"))}
    table.append(pa.table({"id": [0], **known}))
    (tmp_path / "a.csv").write_text(f"id,until,at\n1,{last},12:00:00.000000000\n")
    table.append_files(tmp_path / "a.csv")
    table.compact()
    assert table.read(filter=[("id", "==", 1)]).to_pylist() == [{"id": 1, "until": last, "at": noon}]


def test_a_value_beside_finer_times_is_named_and_not_the_times(catalog, tmp_path):
    table = catalog.create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": [0], "n": [0], "at": pa.array([datetime.time(12)], pa.time64("us"))}))
    (tmp_path / "a.csv").write_text("id,at,n\n1,12:00:00.000000000,many\n")
    with pytest.raises(InputError, match=r"column 'n' is int64 in earlier rows or files, and 'many' is not$"):
        table.append_files(tmp_path / "a.csv")
