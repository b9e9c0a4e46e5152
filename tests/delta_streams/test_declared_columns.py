"""Tables that declare the types of their columns."""

import pyarrow as pa
import pytest

import deltacompact
from deltacompact import cli
from deltacompact.base.errors import ConflictError, InputError, SchemaError
from deltacompact.catalog.mirror import mirror
from deltacompact.delta_streams.declared_columns import declared_columns


@pytest.fixture
def csv(tmp_path):
    """Writes a CSV file, and returns its path."""

    def written(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return written


def test_whole_numbers_first_and_fractions_later(catalog, csv):
    sales = catalog.create_table("sales", primary_keys=["id"], columns="id long, amount double")
    for name, text in (("a.csv", "id,amount\n1,3\n"), ("b.csv", "id,amount\n2,4.5\n")):
        sales.append_files(csv(name, text))
    assert sales.read().sort_by("id").to_pydict() == {"id": [1, 2], "amount": [3.0, 4.5]}
    sales.compact()
    sales.append_files(csv("c.csv", "id,amount,note\n3,5,x\n"))
    assert sales.read().schema.field("amount").type == pa.float64()


def test_text_of_the_first_partitions_takes_the_declared_types(catalog, csv):
    columns = "id long, amount double, code string, day date"
    sales = catalog.create_table("sales", partition_keys=["day"], primary_keys=["id"], columns=columns)
    sales.append_files(csv("a.csv", "id,day,amount,code\n1,2026-11-26,3,007\n2,2026-11-27,4,008\n"))
    assert sales.read().sort_by("id").select(["amount", "code"]).to_pydict() == {
        "amount": [3.0, 4.0],
        "code": ["007", "008"],
    }
    assert len(sales.partitions()) == 2


def test_without_a_declaration_the_message_says_how_to_declare(catalog, csv):
    catalog.create_table("sales", primary_keys=["id"])
    catalog.append_files("sales", csv("a.csv", "id,amount\n1,3\n"))
    with pytest.raises(
        InputError, match=r"is int64 in .*, and '4\.5' is not: declare a wider type when you create the table"
    ):
        catalog.append_files("sales", csv("b.csv", "id,amount\n2,4.5\n"))
    with pytest.raises(InputError, match=r"and 'x' is not$"):
        catalog.append_files("sales", csv("c.csv", "id,amount\n2,x\n"))


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_an_empty_text_in_quotes_is_null_unless_the_column_is_text(catalog, csv, end, reference):
    """Programs that quote all fields write nulls so. Such files were refused."""
    columns = "id long, n int, d decimal(9,2), f double, b boolean, t timestamp, day date, code string, raw binary"
    all_types = catalog.create_table("all_types", primary_keys=["id"], columns=columns)
    names = all_types.read().column_names
    rows = [
        dict.fromkeys(names, "") | {"id": "1"},
        dict(
            zip(names, ("2", "7", "1.5", "2.5", "true", "2026-11-30 01:02:03", "2026-11-30", "007", "x"), strict=True)
        ),
        dict.fromkeys(names, "") | {"id": "3", "f": "nan"},
    ]
    lines = [",".join(f'"{field}"' for field in fields) for fields in (names, *(row.values() for row in rows))]
    all_types.append_files(csv("a.csv", "\n".join(lines) + end), reference=reference)
    for _ in range(2):
        found = all_types.read().sort_by("id")
        assert [found[name].null_count for name in names] == [0, 2, 2, 1, 2, 2, 2, 0, 0]
        assert (found["code"].to_pylist(), found["raw"].to_pylist()) == (["", "007", ""], [b"", b"x", b""])
        assert found["n"].to_pylist() == [None, 7, None]
        all_types.compact()
    with pytest.raises(InputError, match=r"column 'n' is int32 in earlier rows or files, and 'x' is not$"):
        all_types.append_files(csv("b.csv", '"id","n","d"\n"4","x",""\n'))


def test_a_declared_column_that_no_compacted_file_has_keeps_its_type(catalog, csv):
    sales = catalog.create_table("sales", primary_keys=["id"], columns="id long, amount double")
    sales.append_files(csv("a.csv", "id\n1\n"))
    sales.compact()
    sales.append_files(csv("b.csv", "id,amount\n2,4\n"))
    assert sales.read().schema.field("amount").type == pa.float64()


def test_rows_of_other_types_are_refused(catalog):
    sales = catalog.create_table(
        "sales", primary_keys=["id"], columns=pa.schema([("id", pa.int64()), ("n", pa.float64())])
    )
    with pytest.raises(SchemaError, match="the appended table: column 'n' is int64, and declared as double"):
        sales.append(pa.table({"id": [1], "n": [3]}))
    sales.append(pa.table({"id": pa.array([1], pa.int32()), "n": pa.array([None], pa.null())}))


def test_a_fixed_schema_holds_from_the_first_append_on(catalog):
    sales = catalog.create_table("sales", primary_keys=["id"], columns="id long", schema_mode="fixed")
    with pytest.raises(SchemaError, match="column 'regoin' is new"):
        sales.append(pa.table({"id": [1], "regoin": ["eu"]}))


def test_all_partitions_have_the_declared_types(catalog, csv):
    sales = catalog.create_table("sales", ["day"], ["id"], columns="amount double")
    sales.append_files(csv("a.csv", "id,amount\n1,3\n"), {"day": "1"})
    sales.append(pa.table({"id": [2], "amount": [4.5], "day": ["2"]}), partition_by="day")
    sales.append_files(csv("c.csv", "id,amount,day,op\n3,5,3,I\n"), operation_column="op")
    assert sorted(sales.read()["amount"].to_pylist()) == [3.0, 4.5, 5.0]


def test_text_in_a_new_partition_takes_the_types_of_the_last_one(catalog, csv):
    catalog.create_table("sales", ["day"], ["id"])
    catalog.append_files("sales", csv("a.csv", "id,amount\n1,4.5\n"), {"day": "1"})
    catalog.append_files("sales", csv("b.csv", "id,amount\n1,3\n"), {"day": "2"})  # else nobody could read both
    assert sorted(catalog.read("sales")["amount"].to_pylist()) == [3.0, 4.5]
    catalog.create_table("whole", ["day"], ["id"])
    catalog.append_files("whole", csv("c.csv", "id,amount\n1,3\n"), {"day": "1"})
    with pytest.raises(InputError, match=r"column 'amount' is int64 in earlier rows or files, and '4\.5' is not"):
        catalog.append_files("whole", csv("d.csv", "id,amount\n1,4.5\n"), {"day": "2"})


def test_the_declaration_is_stored_and_stays(catalog):
    catalog.create_table("sales", columns="id long, at timestamptz")
    again = deltacompact.open_catalog(catalog.store.root)
    assert again.create_table("sales").keys is None
    expected = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    assert again.described("sales").columns == expected
    again.create_table("sales", columns=expected)
    with pytest.raises(ConflictError, match="'sales' exists and is declared otherwise"):
        again.create_table("sales", columns="id string")


def test_whole_numbers_and_texts_have_their_names_in_sql_too():
    declared = declared_columns("a tinyint, b smallint, c integer, d bigint, e bool, f varchar, g text")
    assert declared.types == [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.bool_(), pa.string(), pa.string()]


@pytest.mark.parametrize("keys", [(), ("day",)])
def test_a_table_without_rows_has_the_declared_columns(catalog, keys):
    sales = catalog.create_table("sales", keys, primary_keys=["id"], columns="id long, amount double")
    assert sales.read().schema == declared_columns("id long, amount double")
    assert sales.read(columns=["amount"], filter=[("id", ">", 3)]).num_rows == 0
    assert sales.changes(where="amount > 3", columns=["id"]).read_all().num_rows == 0
    assert sales.changes("1970-01-01", bookmark="mirror", where="amount > 3").read_all().num_rows == 0
    assert not sales.commit_bookmark("mirror")
    with pytest.raises(InputError, match="'amuont'"):
        sales.read(columns=["amuont"])
    rows = pa.table({"id": [1], "amount": [4.5]})
    sales.append(rows, partition={key: "1" for key in keys} or None)
    assert sales.read().to_pydict() == rows.to_pydict()
    assert sales.changes(bookmark="mirror", where="amount > 3").read_all()["id"].to_pylist() == [1]


@pytest.mark.parametrize("bookmark", [{}, {"bookmark": "own", "from_": "1970-01-01"}])
@pytest.mark.parametrize(
    ("columns", "asked", "said"),
    [
        ("id long, v double", {"where": "v > 'x'"}, r"where .* is not an expression about this table"),
        *(
            (columns, asked, said)
            for columns in ("id long, v double", None)
            for asked, said in (
                ({"where": "nope >> 1"}, "where 'nope >> 1'"),
                ({"where": [("id", "is", 3)]}, "filter"),
                ({"columns": []}, "name at least one column"),
            )
        ),
    ],
)
def test_a_wrong_filter_of_a_table_without_rows_is_refused(catalog, bookmark, columns, asked, said):
    """A mirror began with it, and failed at the first row. That row may bring an unknown column."""
    table = catalog.create_table("t", primary_keys=["id"], columns=columns)
    with pytest.raises(InputError, match=said):
        table.changes(**bookmark, **asked)
    assert table.changes(where="nope > 'x'", columns=["id", "nope"]).read_all().num_rows == 0


@pytest.mark.parametrize(("keys", "columns"), [((), "v double"), (("p",), "p date, v double")])
def test_a_feed_that_begins_with_a_delete_goes_on_although_the_key_is_not_declared(catalog, keys, columns):
    partition = {key: "2026-11-01" for key in keys} or None
    source = catalog.create_table("source", keys, primary_keys=["id"], columns=columns)
    source.append(pa.table({"id": [9]}), operation="delete", partition=partition)
    asked = {"where": "id > 0 and note is null", "columns": ["id", "note"]}
    assert source.changes("1970-01-01", bookmark="own").read_all().num_rows == 0
    assert source.changes("1970-01-01", bookmark="asked", **asked).read_all().num_rows == 0
    source.append(pa.table({"id": [1], "v": [4.5], "note": pa.array([None], pa.string())}), partition=partition)
    for name, terms in (("own", {}), ("asked", asked)):
        assert source.changes(bookmark=name, **terms).read_all().num_rows == 0
        assert source.commit_bookmark(name)
        assert source.changes(bookmark=name, **terms).read_all()["id"].to_pylist() == [1]
    assert source.diff().inserts == 1


def test_a_mirror_whose_source_begins_with_a_delete_goes_on(catalog):
    source = catalog.create_table("source", primary_keys=["id"], columns="v double")
    copy = catalog.create_table("copy", primary_keys=["id"])
    source.append(pa.table({"id": [9]}), operation="delete")
    assert mirror(source, copy, "to_copy", from_="1970-01-01") == 0
    source.append(pa.table({"id": [1], "v": [4.5]}))
    assert mirror(source, copy, "to_copy") == 1
    assert copy.read()["id"].to_pylist() == [1]


def test_on_the_command_line(tmp_path, capfd):
    words = ["create", str(tmp_path / "lake"), "sales", "--columns"]
    assert cli.run([*words, 'id long, "unit price" decimal(10,2)']) == 0
    assert cli.run([*words, "id string"]) == 3
    assert "columns id int64, unit price decimal128(10, 2)\n" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("id", "columns: 'id' is no name with a type: write \"id long, amount double\""),
        ("id lon", "columns: unknown type 'lon': did you mean 'long'?"),
        ("id varchar(10)", "columns: unknown type 'varchar(10)': did you mean 'varchar'?"),
        ("id long, ID long", "columns: 'ID' and 'id' differ only in case: Spark and Hive mix them up"),
        ("id long, id int", "columns: 'id' is there twice"),
        ("id decimal(99,2)", "columns: decimal(99,2): precision should be between 1 and 38"),
        (["id"], "columns is ['id'], it must be text such as \"id long, amount double\", or a pyarrow Schema"),
    ],
)
def test_columns_that_are_none(columns, told):
    with pytest.raises(InputError) as raised:
        declared_columns(columns)
    assert str(raised.value) == told
