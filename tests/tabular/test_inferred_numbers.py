"""Whole numbers beyond int64 in text, which Arrow reads as doubles, would become one key: they are refused."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest

from deltacompact import InputError, open_catalog

FAR = [9007199254740993, 9007199254740992, 18446744073709551615]
SAID = "row 1: key column '{}' is read as double, .* so rows would be lost: declare a decimal column"


@pytest.fixture
def catalog(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"], sort_keys=["at"])
    return catalog


def lines(rows):
    return "\n".join(json.dumps(row) for row in rows)


@pytest.mark.parametrize("options", [{}, {"operation_column": "op"}, {"reference": True}])
@pytest.mark.parametrize("far", ["id", "at"])
@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_keys_beyond_int64_are_refused(catalog, tmp_path, name, far, options):
    rows = [{"op": "c", "id": 1, "at": 1, "v": number} | {far: number} for number in FAR]
    as_csv = "\n".join(["op,id,at,v", *(",".join(map(str, row.values())) for row in rows)])
    (tmp_path / name).write_text(as_csv if name == "a.csv" else lines(rows))
    with pytest.raises(InputError, match=SAID.format(far)):
        catalog.append_files("t", tmp_path / name, **options)


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_keys_that_the_first_compaction_declares_are_looked_at_too(catalog, tmp_path, name):
    """Two rows were taken for one, and one of them was lost."""
    undeclared = catalog.create_table("u")
    rows = [{"id": number, "v": 1} for number in [*FAR, 0.5]]  # without the last, they are decimals
    as_csv = "\n".join(["id,v", *(",".join(map(str, row.values())) for row in rows)])
    (tmp_path / name).write_text(as_csv if name == "a.csv" else lines(rows))
    appended = undeclared.append_files(tmp_path / name)
    with pytest.raises(InputError, match=SAID.format("id") + ".*; take out the upsert at stream position"):
        undeclared.compact(primary_keys=["id"])
    assert undeclared.keys is None
    undeclared.retract(appended.position)
    undeclared.append(pa.table({"id": [str(number) for number in FAR]}))
    assert undeclared.compact(primary_keys=["id"]).sessions[0].live == len(FAR)


def test_other_numbers_are_read(catalog, tmp_path):
    """int64 whole, doubles below 2^53, and any number in a column that is no key."""
    rows = [{"id": 2**63 - 1 - n, "at": n + 0.5, "v": number} for n, number in enumerate(FAR)]
    (tmp_path / "a.json").write_text(lines(rows))
    catalog.append_files("t", tmp_path / "a.json")
    assert {row["id"] for row in catalog.read("t").to_pylist()} == {row["id"] for row in rows}


@pytest.mark.parametrize("name", ["a.json", "a.csv", "operations.json", "operations.csv", "maxwell.json"])
def test_unsigned_numbers_keep_their_digits(catalog, tmp_path, name):
    """One number above int64 made the column double, and changed the others."""
    rows = [{"id": number, "at": 1, "v": v, "d": v / 2} for number, v in enumerate([*FAR, 0, None, 7]) if v is not None]
    options = {"operation_column": "op"} if "operations" in name else {}
    said = [row | {"op": "c"} if options else row for row in rows]
    if "maxwell" in name:
        said, options = [{"type": "insert", "data": row} for row in rows], {"format": "maxwell"}
    as_csv = "\n".join([",".join(said[0]), *(",".join(map(str, row.values())) for row in said)])
    (tmp_path / name).write_text(as_csv if "csv" in name else lines(said))
    catalog.append_files("t", tmp_path / name, **options)
    assert [int(v) for v in catalog.read("t").sort_by("id")["v"].to_pylist()] == [row["v"] for row in rows]
    assert catalog.read("t").schema.field("d").type == pa.float64()
    (tmp_path / f"2{name}").write_text((as_csv if "csv" in name else lines(said)).replace(str(FAR[0]), "8"))
    catalog.append_files("t", tmp_path / f"2{name}", **options)
    assert catalog.read("t").sort_by("id")["v"][0].as_py() == 8


@pytest.mark.parametrize("texts", [("1.0", "12345678901234567890.0"), ("5", "1.2e19"), ("5.0", "9999999999999999999")])
@pytest.mark.parametrize("name", ["a.json", "a.csv", "operations.json", "operations.csv", "maxwell.json"])
def test_measurements_stay_doubles(catalog, tmp_path, name, texts):
    """Every double from 2^53 on is whole: the file was refused, or the column was decimal for good."""
    options = {"operation_column": "op"} if "operations" in name else {}
    for number, values in enumerate([texts, ("0.5", "-1e30")], 1):
        rows = [f'{{"op": "c", "id": {number}{n}, "at": 1, "v": {value}}}' for n, value in enumerate(values, 1)]
        if "maxwell" in name:
            rows, options = [f'{{"type": "insert", "data": {row}}}' for row in rows], {"format": "maxwell"}
        if "csv" in name:
            rows = ["op,id,at,v", *(f"c,{number}{n},1,{value}" for n, value in enumerate(values, 1))]
        (tmp_path / f"{number}{name}").write_text("\n".join(rows))
        catalog.append_files("t", tmp_path / f"{number}{name}", **options)
    assert catalog.read("t").sort_by("id")["v"].to_pylist() == [*map(float, texts), 0.5, -1e30]


@pytest.mark.parametrize(
    ("value", "shown"), [("0.5", "(0.5|a number with more digits after the point)"), ("1e30", "'?1e30'?")]
)
@pytest.mark.parametrize("name", ["a.json", "a.csv", "maxwell.json"])
def test_what_a_decimal_does_not_hold_names_the_column(catalog, tmp_path, name, value, shown):
    catalog.append("t", pa.table({"id": [1], "at": [1], "v": pa.array([FAR[-1]], pa.decimal128(20, 0))}))
    row = f'{{"id": 2, "at": 1, "v": {value}}}'
    text = f"id,at,v\n2,1,{value}\n" if name == "a.csv" else row
    options = {}
    if name == "maxwell.json":
        text, options, shown = (
            f'{{"type": "insert", "data": {row}}}',
            {"format": "maxwell"},
            re.escape(f"{float(value)}"),
        )
    said = rf"column 'v' is decimal128\(20, 0\) in earlier rows or files, and {shown} is not"
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=rf"{said}: declare a wider type"):
        catalog.append_files("t", tmp_path / name, **options)


@pytest.mark.parametrize("name", ["b.json", "b.csv"])
@pytest.mark.parametrize(("type_", "far"), [(pa.float64(), 2**53), (pa.float32(), 2**24)])
def test_keys_that_a_known_double_cannot_tell_apart_are_refused(catalog, tmp_path, name, type_, far):
    """They were taken, and one of the two rows was lost."""
    catalog.append("t", pa.table({"id": pa.array([1.5], type_), "at": [1]}))
    rows = [{"id": far, "at": 1}, {"id": far + 1, "at": 1}]
    as_csv = "\n".join(["id,at", *(f"{row['id']},{row['at']}" for row in rows)])
    (tmp_path / name).write_text(as_csv if name == "b.csv" else lines(rows))
    with pytest.raises(InputError, match=rf"row 1: key column 'id' is read as {type_}, .* from {far:,} on"):
        catalog.append_files("t", tmp_path / name)
    (tmp_path / name).write_text(
        (tmp_path / name).read_text().replace(str(far), str(far - 1)).replace(str(far + 1), "7")
    )
    catalog.append_files("t", tmp_path / name)


def test_what_is_known_as_int64_has_its_limits(catalog, tmp_path):
    (tmp_path / "a.json").write_text(lines([{"id": 1, "at": 1}]))
    catalog.append_files("t", tmp_path / "a.json")
    (tmp_path / "b.json").write_text(lines([{"id": FAR[-1], "at": 1}]))
    with pytest.raises(
        InputError, match="column 'id' is int64 in earlier rows or files, and 18446744073709551615 is not"
    ):
        catalog.append_files("t", tmp_path / "b.json")
