"""The first files of a partition fit the other partitions, so that the table can be read as a whole."""

import contextlib
import datetime
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from counting_store import CountingStore
from hypothesis import given
from hypothesis import strategies as st
from stores import InterceptedStore

import deltacompact
from deltacompact.base.errors import InputError, SchemaError, StoreError
from deltacompact.base.model import Partition
from deltacompact.delta_streams.appending.other_partitions import OtherPartitions
from deltacompact.delta_streams.spellings import Spellings
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import partition_texts

VALUES = {
    "int": pa.array([7], pa.int32()),
    "long": pa.array([7], pa.int64()),
    "unsigned": pa.array([7], pa.uint8()),
    "double": pa.array([0.5]),
    "string": pa.array(["x"]),
    "category": pa.array(["x"]).dictionary_encode(),
    "decimal": pa.array([Decimal("1.50")]),
    "date": pa.array([datetime.date(2026, 11, 27)]),
    "time": pa.array([datetime.datetime(2026, 11, 27)]),
    "nothing": pa.array([None], pa.null()),
    "struct": pa.array([{"x": 1}]),
    "struct of text": pa.array([{"x": "1"}]),
    "list": pa.array([[1]]),
}


def rows(kind, **more):
    return pa.table({"id": [1], "v": VALUES[kind], **more})


def lake(folder, kinds, unchecked=False, existing=False):
    """A table with a partition for each kind, written by a process of its own, and the kinds that were refused.

    `existing`: the partitions have rows before they get the column.
    """
    orders, refused = deltacompact.open_catalog(str(folder)).create_table("orders", ["day"], ["id"]), []
    for number in range(len(kinds)) if existing else ():
        orders.append(pa.table({"id": [0]}), {"day": number})
    with pytest.MonkeyPatch.context() as patch:
        if unchecked:
            patch.setattr(OtherPartitions, "check_fit", lambda *_, **__: None)
        for number, kind in enumerate(kinds):
            try:
                deltacompact.open_catalog(str(folder)).append("orders", rows(kind), {"day": number})
            except SchemaError:
                refused.append(kind)
    return orders, refused


@given(st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=2), st.booleans())
def test_all_that_is_taken_can_be_read_as_a_whole_and_nothing_else(tmp_path_factory, kinds, existing):
    orders, refused = lake(tmp_path_factory.mktemp("lake"), kinds, existing=existing)
    assert orders.read().num_rows == len(kinds) * (1 + existing) - len(refused)
    assert len(orders.partitions()) == len(kinds) - (0 if existing else len(refused))
    if refused:
        orders, _ = lake(tmp_path_factory.mktemp("lake"), kinds, unchecked=True, existing=existing)
        with pytest.raises(SchemaError):
            orders.read()


@pytest.mark.parametrize("write", [pa.csv.write_csv, pq.write_table])
def test_text_takes_the_type_that_another_partition_has_for_its_new_column(tmp_path, write):
    """The text has digits alone in day b. Without a look at day a they were a number, and nobody read both."""
    orders, path = lake(tmp_path / "lake", [])[0], tmp_path / f"b.{'csv' if write is pa.csv.write_csv else 'parquet'}"
    for day in "ab":
        orders.append(pa.table({"id": [1]}), {"day": day})
    orders.append(pa.table({"id": [2], "code": ["A07"]}), {"day": "a"})
    write(pa.table({"id": [2], "code": [7]}), path)
    if path.suffix == ".parquet":
        with pytest.raises(SchemaError, match=r"b\.parquet: column 'code' is int64 here and string in partition day=a"):
            orders.append_files(path, {"day": "b"})
        return
    orders.append_files(path, {"day": "b"})
    assert sorted(filter(None, orders.read()["code"].to_pylist())) == ["7", "A07"]


def far(unit, year):
    return pa.array([datetime.datetime(year, 1, 1)], pa.timestamp(unit))


def struct(**fields):
    return pa.StructArray.from_arrays([pa.array(values) for values in fields.values()], list(fields))


@pytest.mark.parametrize(
    "steps",
    {
        "far values, in types that become finer": [("a", far("us", 9999)), ("b", far("ns", 2026))],
        "far values in a later partition": [("a", far("ns", 2026)), ("b", far("us", 9999))],
        "a finer type, later": [("a", far("us", 9999)), ("b", far("us", 2026)), ("b", far("ns", 2026))],
        "far values, later": [("a", far("ns", 2026)), ("b", far("us", 2026)), ("b", far("us", 9999))],
        "whole numbers": [("a", pa.array([2**63], pa.uint64())), ("b", pa.array([-1]))],
        "a field of a struct": [("a", struct(x=[1])), ("b", struct(y=[1])), ("b", struct(x=["x"]))],
        "in a list": [("a", [[{"x": 1}]]), ("b", [[{"y": 1}]]), ("b", [[{"x": "x"}]])],
        "a column of nulls": [("a", [1]), ("b", [None]), ("b", ["x"])],
        "a field of nulls": [("a", struct(x=[1])), ("b", struct(x=[None])), ("b", struct(x=["x"]))],
        "lists without items": [("a", [[1]]), ("b", [[]]), ("b", [["x"]])],
        "a partition between that lacks the column": [("a", [1]), ("b", None), ("c", ["x"])],
        "a partition between with nulls": [("a", [1]), ("b", [None]), ("c", ["x"])],
        "seven of them": [("a", [1]), *((f"b{number}", None) for number in range(7)), ("c", ["x"])],
    }.values(),
)
@pytest.mark.parametrize("by_one_process", [False, True])
def test_the_last_step_is_refused_and_the_table_is_read(tmp_path, steps, by_one_process):
    """It was taken, and the table could not be read as a whole any more."""
    deltacompact.open_catalog(tmp_path).create_table("orders", ["day"], ["id"])
    given = [({"id": [1]} if values is None else {"id": [1], "v": values}, day) for day, values in steps]
    one = deltacompact.open_catalog(tmp_path)
    for place, (columns, day) in enumerate(given, 1):
        orders = (one if by_one_process else deltacompact.open_catalog(tmp_path)).table("orders")
        if place == len(steps):
            with pytest.raises(SchemaError, match=r"column 'v' is .* here and .* in partition day=a"):
                orders.append(pa.table(columns), {"day": day})
        else:
            orders.append(pa.table(columns), {"day": day})
    assert orders.read().num_rows == len({day for _, day in given[:-1]})


DAYS = {"7": [7], "8": [8], "x": ["x"], "2026-11-27": [datetime.date(2026, 11, 27)], "true": [True]}


@given(st.permutations(sorted(DAYS)), st.sets(st.sampled_from(sorted(DAYS))), st.booleans(), st.booleans())
def test_a_partition_whose_value_does_not_fit_the_column_of_others_is_refused(days, in_files, by_one_process, deleted):
    """It was taken, and nobody could read the table as a whole: the rows of a file without the column get the value."""
    store, taken = MemoryStore(), list[str]()
    one = deltacompact.DeltaStreamCatalog(store)
    one.create_table("orders", ["day"], ["id"])
    for day in days:
        orders = (one if by_one_process else deltacompact.DeltaStreamCatalog(store)).table("orders")
        if deleted:
            orders.append(pa.table({"id": [0]}), {"day": day}, operation="delete")
        try:
            orders.append(pa.table({"id": [1], **({"day": DAYS[day]} if day in in_files else {})}), {"day": day})
            taken.append(day)
        except SchemaError as error:
            assert taken
            assert f"{error}".count("so the table could not be read as a whole") == 1
        assert orders.read().num_rows == len(taken)


def test_a_refused_partition_value_is_named_and_begins_nothing(catalog):
    orders = catalog.create_table("orders", ["day"], ["id"])
    orders.append(pa.table({"id": [1], "day": [1]}), {"day": "1"})
    before = {stat.path for stat in catalog.store.list("")}
    with pytest.raises(
        SchemaError, match="value 'x' does not fit int64, the type of column 'day' in other partitions, so"
    ):
        orders.append(pa.table({"id": [1]}), {"day": "x"})
    assert {stat.path for stat in catalog.store.list("")} == before
    others = catalog.create_table("others", ["day"], ["id"])
    others.append(pa.table({"id": [1]}), {"day": "x"})
    with pytest.raises(SchemaError, match="value 'x' does not fit int64, the type of column 'day' here, so the table"):
        others.append(pa.table({"id": [1], "day": [1]}), {"day": "1"})


def test_partition_values_of_a_table_that_is_mixed_already_are_taken(tmp_path):
    """Each of its partitions can be read alone."""
    orders, _ = lake(tmp_path, ["long"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OtherPartitions, "check_fit", lambda *_, **__: None)
        orders.append(pa.table({"id": [1], "v": [1], "day": [7]}), {"day": "7"})
        orders.append(pa.table({"id": [1], "v": [1]}), {"day": "x"})
    orders.append(pa.table({"id": [1], "v": [1]}), {"day": "y"})
    orders.append(pa.table({"id": [1], "v": [1], "day": [8]}), {"day": "8"})
    orders.append(pa.table({"id": [1], "w": [1]}), {"day": "x"})
    with pytest.raises(SchemaError, match=r"^partition value '.' does not fit int64, the type of column 'day'$"):
        orders.changes().read_all()  # to take all rows anew would not help


def test_an_append_without_new_columns_asks_for_no_other_partition():
    store = CountingStore(MemoryStore())
    orders = deltacompact.DeltaStreamCatalog(store).create_table("orders", ["day"], ["id"])
    for day in "ab":
        orders.append(rows("long"), {"day": day})
    store.reset()
    deltacompact.DeltaStreamCatalog(store).append("orders", rows("long"), {"day": "a"})
    assert not [path for kind, path in store.requests if kind == "list" or "day=b" in path]


def test_a_refusal_names_both_types_and_begins_nothing(catalog):
    orders = catalog.create_table("orders", ["day"], ["id"])
    orders.append(rows("long"), {"day": "a"})
    before = {stat.path for stat in catalog.store.list("")}
    with pytest.raises(
        SchemaError, match="the appended table: column 'v' is string here and int64 in partition day=a, so the table"
    ):
        orders.append(rows("string"), {"day": "b"})
    assert {stat.path for stat in catalog.store.list("")} == before


def test_one_wrong_partition_refuses_all_that_an_append_routes(catalog, tmp_path):
    orders = catalog.create_table("orders", ["day"], ["id"])
    orders.append(rows("long"), {"day": "a"})
    pq.write_table(rows("string", day=["b"]), tmp_path / "b.parquet")
    with pytest.raises(SchemaError, match=r"b\.parquet: column 'v' is string here and int64 in partition day=a"):
        orders.append_files(tmp_path / "b.parquet")
    assert [str(partition) for partition in orders.partitions()] == ["day=a"]


@pytest.mark.parametrize("existing", [False, True])
def test_partitions_that_one_append_routes_fit_each_other(catalog, tmp_path, existing):
    """The first was committed, and the second was refused for ever."""
    orders = catalog.create_table("orders", ["day"], ["id"])
    for day in "ab" if existing else "":
        orders.append(pa.table({"id": [0]}), {"day": day})
    pq.write_table(rows("long", day=["a"]), tmp_path / "a.parquet")
    pq.write_table(rows("string", day=["b"]), tmp_path / "b.parquet")
    with pytest.raises(SchemaError, match=r"b\.parquet: column 'v' is string, which does not fit int64 in other"):
        orders.append_files([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert orders.read().num_rows == 2 * existing


def test_keys_of_deletes_and_partitions_that_have_columns_are_not_compared(catalog):
    orders = catalog.create_table("orders", ["day"], ["id"])
    orders.append(rows("long"), {"day": "a"})
    orders.append(pa.table({"id": [1], "v": ["why"]}), {"day": "b"}, operation="delete")
    orders.restate(rows("string"), {"day": "a"})
    orders.append(rows("category"), {"day": "a"})
    orders.append(rows("string"), {"day": "c"})


def test_writers_of_a_table_that_is_mixed_already_go_on(tmp_path):
    orders, _ = lake(tmp_path, ["long", "long", "string"], unchecked=True)
    for day, kind in enumerate(["long", "string"], 3):
        deltacompact.open_catalog(str(tmp_path)).append("orders", rows(kind), {"day": day})
    with pytest.raises(SchemaError, match="column 'v' is list<item: int64> here and string in partition day=4"):
        orders.append(rows("list"), {"day": 5})


def test_a_table_that_was_created_anew_has_other_types(catalog):
    orders = catalog.create_table("orders", ["day"], ["id"])
    orders.append(rows("long"), {"day": "a"})
    other = deltacompact.DeltaStreamCatalog(catalog.store)
    other.drop_table("orders")
    other.create_table("orders", ["day"], ["id"]).append(rows("string"), {"day": "a"})
    orders.append(rows("string"), {"day": "b"})
    assert other.read("orders")["v"].to_pylist() == ["x", "x"]


@pytest.mark.parametrize("partitions", [["z"], ["7"], []])
@pytest.mark.parametrize("in_files", [True, False])
def test_an_append_to_many_new_partitions_asks_for_others_once(partitions, in_files):
    def listings(new):
        store = CountingStore(MemoryStore())
        orders = deltacompact.DeltaStreamCatalog(store).create_table("orders", ["day"], ["id"])
        for day in partitions:
            orders.append(rows("long"), {"day": day})
        store.reset()
        frame = pa.table({"id": range(new), "v": range(new), "day": [str(day) for day in range(new)]})
        catalog = deltacompact.DeltaStreamCatalog(store)
        catalog.at_once = 1  # those that are checked at the same time do not wait for each other's answer
        if in_files:
            catalog.append("orders", frame)
        else:
            for day in range(new):
                catalog.append("orders", rows("long"), {"day": day})
        return store.requests.count(("list", "orders/partitions/"))

    assert listings(5) == listings(1) > 0


def test_text_with_columns_that_the_last_partition_lacks_takes_the_types_of_its_own_partitions(tmp_path):
    table = deltacompact.open_catalog(str(tmp_path / "lake")).create_table("orders", ["day"], ["id"])
    table.append(pa.table({"id": [1], "price": [1.5], "code": ["x"]}), {"day": "1"})
    table.append(pa.table({"id": [1], "tags": [["a"]], "size": [2.5]}), {"day": "2"})
    table.append(pa.table({"id": [1]}), {"day": "3"})

    def append(name, text):
        (tmp_path / name).write_text(text)
        # A process that remembers nothing, as each call of the command line is.
        return deltacompact.open_catalog(str(tmp_path / "lake")).table("orders").append_files([tmp_path / name])

    append("a.csv", "day,id,price,code,size\n1,2,3,007,\n2,2,,,4\n3,2,,,5\n")
    append("b.json", '{"day": "1", "id": 3, "code": "008"}\n{"day": "2", "id": 3, "tags": ["b"], "size": 6}\n')
    names = ["day", "id", "price", "code", "size", "tags"]
    found = table.read(columns=names).to_pylist()
    assert sorted(tuple(row[name] for name in names) for row in found) == [
        ("1", 1, 1.5, "x", None, None),
        ("1", 2, 3.0, "007", None, None),
        ("1", 3, None, "008", None, None),
        ("2", 1, None, None, 2.5, ["a"]),
        ("2", 2, None, None, 4.0, None),
        ("2", 3, None, None, 6.0, ["b"]),
        ("3", 1, None, None, None, None),
        ("3", 2, None, None, 5.0, None),
    ]
    with pytest.raises(InputError, match=r"c\.csv: column 'price' is double in earlier rows or files, and 'cheap' is"):
        append("c.csv", "day,id,price\n1,4,cheap\n")
    assert table.read().num_rows == 8


# One value, one partition

NAMED_TWICE = [
    (pa.array([1]), "1", "01"),
    (pa.array([True]), "true", "1"),
    (pa.array([0.1], pa.float32()), "0.10000000149011612", "0.1"),
    (pa.array([0], pa.timestamp("us")), "1970-01-01 00:00:00", "1970-01-01"),
    (pa.array([Decimal("1.50")]), "1.50", "1.5"),
]


@pytest.mark.parametrize("routed", [False, True])
@pytest.mark.parametrize(("values", "text", "other"), NAMED_TWICE)
def test_a_value_has_one_partition_whatever_its_texts(values, text, other, routed):
    """A key lived in both, and an upsert or a delete in one of them left the row of the other."""
    store = MemoryStore()
    orders = deltacompact.DeltaStreamCatalog(store).create_table("orders", ["p"], ["id"])
    batch = pa.table({"id": [1], "p": values})
    orders.append(batch, None if routed else {"p": text})
    (known,) = orders.partitions()
    again = deltacompact.DeltaStreamCatalog(store).table("orders")
    for rows_of_other in (batch, batch.select(["id"])):
        with pytest.raises(SchemaError, match=f"partition p={other} has the value of partition {known}, in another"):
            again.append(rows_of_other, {"p": other})
    assert again.partitions() == [known] and len(list(store.list("orders/p="))) > 0
    again.append(batch, known)
    assert again.read().num_rows == 1


def test_texts_are_other_values_where_the_column_is_text_or_in_no_file():
    for more in ({}, {"p": ["1"]}):
        orders = deltacompact.DeltaStreamCatalog(MemoryStore()).create_table("orders", ["p"], ["id"])
        orders.append(pa.table({"id": [1], **more}), {"p": "1"})
        orders.append(pa.table({"id": [1]}), {"p": "01"})
        assert orders.read().num_rows == 2


def test_a_thousand_new_partitions_are_not_listed_a_thousand_times_and_late_ones_of_others_are():
    now_s, inner = [1e9], MemoryStore()
    store = CountingStore(inner)
    catalog = deltacompact.DeltaStreamCatalog(store, clock=lambda: now_s[0])
    orders = catalog.create_table("orders", ["p"], ["id"])
    for number in range(20):
        orders.append(pa.table({"id": [1], "p": [number]}), {"p": number})
    listings = [path for kind, path in store.requests if kind == "list" and "stream" not in path]
    assert len(listings) <= 2
    other = deltacompact.DeltaStreamCatalog(inner, clock=lambda: now_s[0]).table("orders")
    other.append(pa.table({"id": [1], "p": [20]}), {"p": "20"})
    now_s[0] += 120
    with pytest.raises(SchemaError, match="p=020 has the value of partition p=20"):
        orders.append(pa.table({"id": [1], "p": [20]}), {"p": "020"})


@pytest.mark.parametrize("declared", [None, "id long, p long"])
def test_large_numbers_ask_for_no_more_than_small_ones(declared):
    """As floats they are one number, so each new partition asked eight others whether they have the column."""
    asked = []
    for first in (1, 1_234_567_890_123_456_000):
        store = CountingStore(MemoryStore())
        catalog = deltacompact.DeltaStreamCatalog(store, clock=lambda: 1e9)
        orders = catalog.create_table("orders", ["p"], ["id"], columns=declared)
        for number in range(first, first + 10):
            orders.append(pa.table({"id": [1]}), {"p": number})
        asked.append(len(store.requests))
    small, large = asked
    assert large == small


@pytest.mark.parametrize("text", ["{:02}", "{:02}.0", "2026-01-01T{:02}"])
def test_a_text_that_is_unusual_by_a_guess_asks_for_no_more_than_others(text):
    """Nobody may have rows of p=1 beside p=01, and each new partition asked for p=1."""
    asked = []
    for form in ("day {}", text):
        catalog = deltacompact.DeltaStreamCatalog(store := CountingStore(MemoryStore()), clock=lambda: 1e9)
        orders = catalog.create_table("orders", ["p", "q"], ["id"])
        for number in range(1, 10):
            orders.append(pa.table({"id": [1]}), {"p": form.format(number), "q": "2026"})
        asked.append(len(store.requests))
    assert asked[0] == asked[1]


def test_a_process_that_asked_nobody_yet_supposes_no_type():
    """Its first partition was like no other one. By its likely type the next one was another number than a float's."""
    store = MemoryStore()
    orders = deltacompact.DeltaStreamCatalog(store).create_table("orders", ["p"], ["id"])
    orders.append(pa.table({"id": [1], "p": [2.0**53]}), {"p": str(2**53)})
    orders.append(pa.table({"id": [1]}), {"p": "5"})
    again = deltacompact.DeltaStreamCatalog(store).table("orders")
    again.append(pa.table({"id": [1]}), {"p": "6"})
    with pytest.raises(SchemaError, match=f"p={2**53 + 1} has the value of partition p={2**53}"):
        again.append(pa.table({"id": [1]}), {"p": str(2**53 + 1)})


@pytest.mark.parametrize("declared", [None, "id long, p long"])
def test_a_declared_number_has_one_partition_before_a_file_has_its_column(declared):
    orders = deltacompact.DeltaStreamCatalog(MemoryStore()).create_table("orders", ["p"], ["id"], columns=declared)
    for text in ("16", "5"):
        orders.append(pa.table({"id": [1]}), {"p": text})
    refused = pytest.raises(SchemaError, match="p=0x10 has the value of partition p=16")
    with refused if declared else contextlib.nullcontext():
        orders.append(pa.table({"id": [1]}), {"p": "0x10"})


def test_a_whole_number_that_is_no_float_is_compared_with_more_than_a_partition_of_whole_numbers():
    """p=7 was enough to take 0x10, as it is a number, too. Then nobody could read the table."""
    orders = deltacompact.DeltaStreamCatalog(MemoryStore()).create_table("orders", ["p"], ["id"])
    orders.append(pa.table({"id": [1], "p": [5.0]}), {"p": "5"})
    orders.append(pa.table({"id": [1]}), {"p": "7"})
    with pytest.raises(SchemaError, match="'0x10' does not fit double"):
        orders.append(pa.table({"id": [1]}), {"p": "0x10"})


def test_an_unusual_text_is_compared_with_partitions_that_another_process_has_just_begun():
    store = MemoryStore()
    orders, others = (deltacompact.DeltaStreamCatalog(store) for _ in range(2))
    rows = pa.table({"id": [1], "p": [1]})
    table = orders.create_table("orders", ["p"], ["id"])
    table.append(pa.table({"id": [1], "p": [5]}), {"p": "5"})
    others.table("orders").append(rows, {"p": "1"})
    with pytest.raises(SchemaError, match="p=01 has the value of partition p=1"):
        table.append(rows, {"p": "01"})


def test_a_partition_that_was_never_begun_is_in_nobodys_way():
    """The append to it failed, so it hid the one that was begun instead."""
    failing = set()

    def intercept(kind, path, ask):
        if kind in failing:
            raise StoreError("503")
        return ask()

    store = InterceptedStore(MemoryStore(), intercept)
    orders = deltacompact.DeltaStreamCatalog(store).create_table("orders", ["p"], ["id"])
    rows = pa.table({"id": [1], "p": [1]})
    orders.append(pa.table({"id": [1], "p": [5]}), {"p": "5"})
    failing.add("put_if_absent")
    with pytest.raises(StoreError):
        orders.append(rows, {"p": "01"})
    failing.clear()
    orders.append(rows, {"p": "1"})
    with pytest.raises(SchemaError, match="p=001 has the value of partition p=1"):
        orders.append(rows, {"p": "001"})


VARIOUS = ["1", "01", "1.0", "true", "7", "3000000000", "x", "nan", "2026-11-27", "2026-11-27 00:00:00", None]
NUMBERS = ["5", "16", "0x10", "1.6e1", "16777216", "16777217", "9007199254740992", "9007199254740993"]
TYPES = [pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us")]
HISTORIES = st.sampled_from([VARIOUS, NUMBERS]).flatmap(
    lambda texts: st.lists(
        st.tuples(
            st.sampled_from(texts),
            st.none() | st.sampled_from(TYPES),
            st.sampled_from(["upsert", "upsert", "delete"]),
            st.booleans(),
        ),
        min_size=2,
        max_size=7,
    )
)


@given(HISTORIES, st.sampled_from([None, None, "id long", "id long, day long"]), st.booleans())
def test_whatever_was_taken_can_be_read_and_each_value_has_one_partition(history, declared, hourly):
    """Partitions were taken where the compared one lacked the column, where the first files were deletes, where the
    type was a declared one, and where texts were one number of an unknown type, as 0x10 and 16 are: nobody could read
    the table, or a key lived in two partitions."""
    store = MemoryStore()
    catalog = deltacompact.DeltaStreamCatalog(store)
    catalog.create_table("orders", ["day", "hour"] if hourly else ["day"], ["id"], columns=declared)
    for text, type_, operation, by_new_process in history:
        catalog = deltacompact.DeltaStreamCatalog(store) if by_new_process else catalog
        orders = catalog.table("orders")
        rows = {"id": [1]}
        with contextlib.suppress(pa.ArrowInvalid):
            rows |= {"day": pa.array([text]).cast(type_)} if type_ is not None else {}
        with contextlib.suppress(SchemaError):
            orders.append(pa.table(rows), {"day": text} | ({"hour": "0"} if hourly else {}), operation=operation)
        read = orders.read()
        days = read["day"].to_pylist() if "day" in read.column_names else []
        assert len(days) == len(set(days))


@pytest.mark.parametrize(
    ("steps", "refused"),
    {
        "a partition that lacks the column came last": (
            [("1", [1], "upsert"), ("5", None, "upsert"), ("01", None, "upsert")],
            "partition day=01 has the value of partition day=1, in another text: append to that one",
        ),
        "hexadecimal digits, and the last partition lacks the column": (
            [("16", [16], "upsert"), ("5", None, "upsert"), ("0x10", None, "upsert")],
            "partition day=0x10 has the value of partition day=16, in another text: append to that one",
        ),
        "whole numbers that are one of a short float": (
            [
                ("16777216", pa.array([2**24], pa.float32()), "upsert"),
                ("5", None, "upsert"),
                ("16777217", None, "upsert"),
            ],
            "partition day=16777217 has the value of partition day=16777216, in another text: append to that one",
        ),
        "the column comes later": (
            [("1", None, "upsert"), ("01", None, "upsert"), ("2", [2], "upsert")],
            "'day' is int64 here, and partitions day=01 and day=1 have one value of it, so a key could live in both",
        ),
        "it comes to one of the two": (
            [("1", None, "upsert"), ("01", None, "upsert"), ("1", [1], "upsert")],
            "'day' is int64 here, and partitions day=01 and day=1 have one value of it, so a key could live in both",
        ),
        "deletes come first": (
            [("1", [1], "upsert"), ("01", None, "delete")],
            "partition day=01 has the value of partition day=1, in another text: append to that one",
        ),
        "NaN": (
            [("1.5", [1.5], "upsert"), ("nan", None, "upsert")],
            "partition value 'nan' of column 'day' is NaN, which equals no value: give the partition another value",
        ),
        "a longer number than those of the narrow column": (
            [("1", pa.array([1], pa.int32()), "upsert"), ("2", None, "upsert"), ("3000000000", None, "upsert")],
            "partition value '3000000000' does not fit int32, the type of column 'day' in other partitions, so",
        ),
    }.values(),
)
@pytest.mark.parametrize("by_one_process", [False, True])
def test_the_last_partition_is_refused_by_its_value(steps, refused, by_one_process):
    store = MemoryStore()
    one = deltacompact.DeltaStreamCatalog(store)
    one.create_table("orders", ["day"], ["id"])
    for place, (day, values, operation) in enumerate(steps, 1):
        orders = (one if by_one_process else deltacompact.DeltaStreamCatalog(store)).table("orders")
        refusing = pytest.raises(SchemaError, match=refused) if place == len(steps) else contextlib.nullcontext()
        with refusing:
            orders.append(
                pa.table({"id": [1]} | ({"day": values} if values else {})), {"day": day}, operation=operation
            )


@pytest.mark.parametrize("first", ["upsert", "delete"])
def test_a_value_that_does_not_fit_the_declared_column_is_refused_for_rows(first):
    """There was no other partition that had the column, or the partition itself had the declared one."""
    store = MemoryStore()
    deltacompact.DeltaStreamCatalog(store).create_table("orders", ["day"], ["id"], columns="id long, day long")
    refused = pytest.raises(SchemaError, match=r"^partition value 'x' does not fit int64, the type of column 'day'$")
    for operation in dict.fromkeys([first, "upsert"]):
        with refused if operation == "upsert" else contextlib.nullcontext():
            orders = deltacompact.DeltaStreamCatalog(store).table("orders")
            orders.append(pa.table({"id": [1]}), {"day": "x"}, operation=operation)
    assert orders.read().num_rows == 0


@pytest.mark.parametrize("declared", [None, "id long, p double"])
def test_a_table_with_a_partition_of_nan_goes_on_and_gets_its_column(declared):
    """Older releases began such partitions. Upserts to it were refused, and the column was in each other partition."""
    store = MemoryStore()
    orders = deltacompact.DeltaStreamCatalog(store).create_table("orders", ["p"], ["id"], columns=declared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_texts, "check_fit", lambda *_: None)
        orders.append(pa.table({"id": [1]}), {"p": "nan"})
    for by_new_process in (False, True):
        orders = deltacompact.DeltaStreamCatalog(store).table("orders") if by_new_process else orders
        orders.append(pa.table({"id": [2]}), {"p": "nan"})
        orders.append(pa.table({"id": [3], "p": [3.5]}), partition_by=["p"])
        orders.append(pa.table({"id": [4]}), {"p": "4.5"})
    read = orders.read().sort_by("id").to_pydict()
    assert read["id"] == [1, 2, 3, 4] and str(read["p"]) == "[nan, nan, 3.5, 4.5]"
    with pytest.raises(SchemaError, match="is NaN, which equals no value"):
        orders.append(pa.table({"id": [5]}), {"p": "NaN"})


def test_threads_begin_partitions_side_by_side():
    """One of them went through the partitions while another one added its own."""
    spellings, types = Spellings(), {"p": pa.int64()}
    spellings.remember([Partition((("p", str(number)),)) for number in range(20_000)], 1e9)
    news = [Partition((("p", str(20_000 + number % 10)),)) for number in range(40)]

    def begun(new):
        return spellings.others(new, types, {}, 1e9, pytest.fail)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(begun, news)) == [[]] * 40
    assert spellings.others(Partition((("p", "07"),)), types, {}, 1e9, list) == [Partition((("p", "7"),))]


@pytest.mark.parametrize(
    ("values", "text"),
    [(pa.array([b"a"]), "a"), (pa.array([-719_528], pa.date32()), "0000-01-01")],
)
def test_a_value_that_rows_are_not_routed_by_has_its_own_text(values, text):
    """Python has no such date, and bytes name no partition: no new partition could be begun."""
    orders = deltacompact.DeltaStreamCatalog(MemoryStore()).create_table("orders", ["p"], ["id"])
    orders.append(pa.table({"id": [1], "p": values}), {"p": text})
    assert [str(partition) for partition in orders.partitions()] == [f"p={text}"]


def test_unusual_texts_are_listed_no_more_often_than_others():
    store = CountingStore(MemoryStore())
    orders = deltacompact.DeltaStreamCatalog(store, clock=lambda: 1e9).create_table("orders", ["p"], ["id"])
    for number in range(20):
        orders.append(pa.table({"id": [1], "p": [number]}), {"p": f"{number:03}"})
    assert len([path for kind, path in store.requests if kind == "list" and "stream" not in path]) <= 2
