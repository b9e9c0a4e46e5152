"""Arrow's ORC writer takes nulls of a nested struct for values, and shifts what follows: ours hands it explicit nulls.

{"a": null}          written by Arrow alone      {"a": null}
{"a": {"b": 5}}                                  {"a": {"b": 0}}
{"a": {"b": 6}}                                  {"a": {"b": 5}}
"""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pyarrow.orc
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from deltacompact.base.model import ContentType
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular.row_groups import WriteOptions
from deltacompact.tabular.writing import write_table

ORC = WriteOptions(ContentType.ORC)


def read_back(table):
    store = MemoryStore()
    write_table(store, "a.orc", table, ORC)
    return pa.orc.read_table(pa.BufferReader(store.get("a.orc")))


def test_a_struct_in_a_struct_keeps_its_values():
    rows = [{"a": None}, {"a": {"b": 5}}, {"a": {"b": 6}}]
    table = pa.table({"v": pa.array(rows, pa.struct({"a": pa.struct({"b": pa.int64()})}))})
    assert read_back(table)["v"].to_pylist() == rows


def nested(child):
    """A type that holds the child's, and its values: without nulls at the top, with nulls inside."""
    type_, values = child
    inside = st.none() | values
    struct = pa.struct({"a": type_, "b": pa.int8()}), st.fixed_dictionaries({"a": inside, "b": st.none() | st.just(1)})
    list_ = pa.list_(type_), st.lists(inside, max_size=3)
    map_ = pa.map_(pa.string(), type_), st.lists(st.tuples(st.sampled_from("xyz"), inside), max_size=2)
    return st.sampled_from([struct, struct, list_, map_])


LEAVES = st.sampled_from(
    [
        (pa.int64(), st.integers(1, 99)),
        (pa.string(), st.text("ab", min_size=1)),
        (pa.float64(), st.just(0.5)),
        (pa.timestamp("us"), st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1))),
    ]
)


@given(st.data(), st.integers(0, 3), st.booleans())
@settings(max_examples=examples(300))
def test_whatever_is_nested_comes_back_also_from_a_slice(data, start, nulls):
    type_, values = data.draw(LEAVES.flatmap(nested).flatmap(nested).flatmap(nested))
    rows = data.draw(st.lists(st.none() | values if nulls else values, min_size=2, max_size=6))
    table = pa.table({"v": pa.array(rows, type_)}).slice(start)
    assert read_back(table)["v"].to_pylist() == table["v"].to_pylist()
