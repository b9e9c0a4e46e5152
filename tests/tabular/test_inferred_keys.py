"""Texts of keys and sort keys whose types a parser finds: it took different texts for one key."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from deltacompact import InputError, open_catalog

OPTIONS = pytest.mark.parametrize("options", [{}, {"operation_column": "op"}, {"reference": True}])


@pytest.fixture
def catalog(tmp_path):
    return open_catalog(tmp_path / "lake")


def written(path, *rows):
    if path.suffix == ".csv":
        path.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    return path


def changes(name, *values):
    return [{"op": "c", name: value, "v": number} for number, value in enumerate(values)]


@OPTIONS
@pytest.mark.parametrize(
    ("values", "row", "said"),
    [
        (["007", "7"], 1, "'007' in column 'id' is read as 7,"),
        (["7", '"007"'], 2, "'007' in column 'id' is read as 7,"),
        (["31", "0x1f"], 2, "'0x1f' in column 'id' is read as 31,"),
        (["7", " 7"], 2, "' 7' in column 'id' is read as 7,"),
        (["0", "-0"], 2, "'-0' in column 'id' is read as 0,"),
        (["", "1.1", "1.10"], 3, "'1.10' in column 'id' is read as 1.1,"),
        (["1e2", "x" * 0, "100"], 3, "'100' in column 'id' is read as 100.0,"),
        (["true", "TRUE"], 2, "'TRUE' in column 'id' is read as True,"),
        (["2026-11-29 00:00:00", "2026-11-29"], 2, "'2026-11-29' in column 'id' is read as 2026-11-29 00:00:00,"),
    ],
)
def test_keys_of_csv_that_other_texts_say_too_are_refused(catalog, tmp_path, options, values, row, said):
    catalog.create_table("t", primary_keys=["id"])
    path = written(tmp_path / "a.csv", *changes("id", *values))
    with pytest.raises(InputError, match=rf"a.csv, row {row}: key {said} .*\(--columns \"id string\", or "):
        catalog.append_files("t", path, **options)
    catalog.create_table("declared", primary_keys=["id"], columns="id string")
    catalog.append_files("declared", path, **options)
    texts = {value.strip('"') or None for value in values}
    assert {*catalog.read("declared")["id"].to_pylist()} == texts


@OPTIONS
@pytest.mark.parametrize("values", [["7", "10", "0", "-3"], ["1.0", "2.5", "", "0.25"], ["007", "A"], ["2026-11-29"]])
def test_keys_of_csv_that_only_one_text_says_are_taken(catalog, tmp_path, options, values):
    catalog.create_table("t", primary_keys=["id"])
    catalog.append_files("t", written(tmp_path / "a.csv", *changes("id", *values)), **options)
    assert catalog.read("t").num_rows == len(values)


@OPTIONS
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("7", "007"),
        ("31", "0x1f"),
        ("7", " 7"),
        ("0", "-0"),
        ("1.1", "1.10"),
        ("true", "TRUE"),
        ("2026-11-29 00:00:00", "2026-11-29"),
    ],
)
def test_keys_of_csv_are_looked_at_in_all_files_of_an_append(catalog, tmp_path, options, first, second):
    """The types of the first file counted as known, and two keys became one row."""
    catalog.create_table("t", primary_keys=["id"])
    files = [written(tmp_path / f"{n}.csv", *changes("id", value)) for n, value in enumerate([first, second])]
    with pytest.raises(InputError, match=rf"1\.csv, row 1: key '{second}' in column 'id' is read as .*--columns"):
        catalog.append_files("t", files, **options)
    again = written(tmp_path / "2.csv", *changes("id", first))
    catalog.append_files("t", [files[0], again], **options)
    assert catalog.read("t").num_rows == 1


def test_what_a_table_knows_as_numbers_goes_on(catalog, tmp_path):
    catalog.create_table("t", primary_keys=["id"], columns="id long")
    catalog.append_files("t", written(tmp_path / "a.csv", *changes("id", "007", "7")))
    assert catalog.read("t")["id"].to_pylist() == [7]


@OPTIONS
@pytest.mark.parametrize("known", [False, True])
def test_keys_of_json_stay_texts_unless_the_table_has_times(catalog, tmp_path, options, known):
    catalog.create_table("t", primary_keys=["id"], columns="id timestamp" if known else None)
    first, later = changes("id", "2026-11-29", "2026-11-29 00:00"), changes("id", "A-1")
    catalog.append_files("t", written(tmp_path / "a.jsonl", *first), **options)
    assert catalog.read("t").num_rows == (1 if known else 2)
    if not known:
        catalog.append_files("t", written(tmp_path / "b.jsonl", *later), **options)
        assert {*catalog.read("t")["id"].to_pylist()} == {"2026-11-29", "2026-11-29 00:00", "A-1"}


@OPTIONS
def test_times_of_csv_with_fractions_are_not_nanoseconds_for_good(catalog, tmp_path, options):
    catalog.create_table("t", primary_keys=["id"])
    times = ["2026-01-01 00:00:00.5", "9999-12-31 00:00:00", "2026-01-01 00:00:00.1234567"]
    for number, time in enumerate(times[:2]):
        rows = [{"op": "c", "id": number, "at": time}]
        catalog.append_files("t", written(tmp_path / f"{number}.csv", *rows), **options)
    assert catalog.read("t").schema.field("at").type == pa.timestamp("us")
    catalog.create_table("fine", primary_keys=["id"])
    for number, time in enumerate([times[2], times[1]]):
        path = written(tmp_path / f"fine{number}.csv", {"op": "c", "id": number, "at": time})
        if number == 0:
            catalog.append_files("fine", path, **options)
    with pytest.raises(InputError, match=r"'at' is timestamp\[ns\] in .*, and '9999-.*' is not: declare a wider type"):
        catalog.append_files("fine", path, **options)


@OPTIONS
@pytest.mark.parametrize("zone", ["", "Z"])
def test_sort_keys_of_json_are_times_with_and_without_fractions(catalog, tmp_path, options, zone):
    """With a fraction in the first file the column was a string, where "…00.5Z" is below "…00Z"."""
    catalog.create_table("t", primary_keys=["id"], sort_keys=["at"])
    for number, at in enumerate(["2026-11-29T10:00:00", "2026-11-29T10:00:00.12", "2026-11-29T10:00:00.123"], 1):
        row = {"op": "c", "id": 1, "at": at + zone, "v": number}
        rows = [row] if number > 1 else [row, row | {"id": 2, "at": f"2026-11-29T10:00:00.5{zone}"}]
        catalog.append_files("t", written(tmp_path / f"{number}.jsonl", *rows), **options)
    found = catalog.read("t", filter=[("id", "=", 1)])
    assert found["v"].to_pylist() == [3] and found.schema.field("at").type == pa.timestamp("us")


@OPTIONS
def test_other_sort_keys_that_are_texts_of_digits_stay_texts(catalog, tmp_path, options):
    """In JSON a number has no quotes: who quotes "10" may mean the text."""
    catalog.create_table("t", primary_keys=["id"], sort_keys=["rank"])
    for number, rank in enumerate(["10", "9", "A"]):
        row = {"op": "c", "id": 1, "rank": rank, "v": number}
        catalog.append_files("t", written(tmp_path / f"{number}.jsonl", row), **options)
        assert catalog.read("t")["v"].to_pylist() == [number]


@OPTIONS
@pytest.mark.parametrize("first", [None, "9"])
def test_sort_keys_of_json_that_are_positions_are_in_their_order(catalog, tmp_path, options, first):
    """As texts "9999999" is above "10000001": the older row won."""
    catalog.create_table("t", primary_keys=["id"], sort_keys=["scn"])
    values = [first, "9999999", "10000001", 10000002, "18446744073709551616"]
    for number, scn in enumerate(values):
        row = {"op": "c", "id": 1, "scn": scn, "v": number}
        catalog.append_files("t", written(tmp_path / f"{number}.jsonl", row), **options)
        assert catalog.read("t")["v"].to_pylist() == [number]
    assert catalog.read("t").schema.field("scn").type == pa.decimal128(38, 0)
    with pytest.raises(InputError, match=r"9\.jsonl.*'scn'|9\.jsonl.*'soon'"):
        catalog.append_files("t", written(tmp_path / "9.jsonl", {"op": "c", "id": 1, "scn": "soon"}), **options)


@OPTIONS
def test_sort_keys_of_json_that_a_table_has_as_texts_go_on(catalog, tmp_path, options):
    catalog.create_table("t", primary_keys=["id"], sort_keys=["scn"], columns="id long, scn string")
    for number, scn in enumerate(["9999999", "10000001"]):
        row = {"op": "c", "id": number, "scn": scn, "v": number}
        catalog.append_files("t", written(tmp_path / f"{number}.jsonl", row), **options)
    assert sorted(catalog.read("t")["scn"].to_pylist()) == ["10000001", "9999999"]


@pytest.mark.parametrize("options", [{}, {"format": "dms"}])
@pytest.mark.parametrize(
    ("older", "newer"),
    [("18:28:21.5-01:30", "20:28:20+00:00"), ("18:28:09.5Z", "20:28:09+01:30"), ("18:28:09.5", "18:28:10")],
)
def test_sort_keys_of_csv_are_times_in_the_year_9999_too(tmp_path, options, older, newer):
    """The parser tries nanoseconds for a fraction, which end in 2262, and made texts of them for good."""
    table = open_catalog(tmp_path / "lake").create_table("t", primary_keys=["id"], sort_keys=["at"])
    lines = [f"U,1,9999-12-31 {at},{version}" for at, version in ((newer, "new"), (older, "old"))]
    if not options:
        lines = [line.removeprefix("U,") for line in lines]
    header = "Op,id,at,version" if options else "id,at,version"
    (path := tmp_path / "a.csv").write_text("\n".join([header, *lines, ""]))
    table.append_files(path, **options)
    assert pa.types.is_timestamp(table.read().schema.field("at").type)
    assert table.read()["version"].to_pylist() == ["new"]
