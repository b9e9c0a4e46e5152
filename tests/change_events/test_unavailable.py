"""Debezium's placeholder for a value that PostgreSQL did not say is refused wherever it stands in an upsert."""

from __future__ import annotations

import json
import uuid

import pyarrow as pa
import pytest

from deltacompact import DeltaStreamCatalog, InputError
from deltacompact.storage.memory import MemoryStore

IT = "__debezium_unavailable_value"
TEXT, BYTES = pa.string(), pa.binary()
NESTED = pa.struct([("n", pa.int64()), ("inner", pa.list_(BYTES))])
HELD = [
    (TEXT, "text", IT),
    (pa.large_string(), "text", IT),
    (TEXT, "text", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
    (TEXT, "text", "5f5f646562657a69756d5f756e617661696c61626c655f76616c7565"),
    (BYTES, b"bytes", IT.encode()),
    (pa.dictionary(pa.int32(), TEXT), "text", IT),
    (pa.list_(TEXT), ["a", "b"], [IT]),
    (pa.list_(TEXT), [str(uuid.UUID(int=1))], [str(uuid.UUID("b68a35a7-17ad-35b3-af2a-ae46edb4545a"))]),
    (pa.list_(pa.int32()), [95, 95], [*IT.encode()]),
    (pa.large_list(pa.int64()), [None, *IT.encode()[1:]], [*IT.encode()]),
    (pa.struct([("of", pa.list_(pa.list_(pa.float64())))]), {"of": [[1.5] * 28]}, {"of": [[1.5], [*IT.encode()]]}),
    (pa.map_(TEXT, TEXT), [("a", "b")], [(IT, IT)]),
    (
        pa.struct([("n", pa.int64()), ("inner", pa.list_(BYTES))]),
        {"n": 1, "inner": [b"x"]},
        {"n": 2, "inner": [b"y", IT]},
    ),
]


@pytest.fixture
def catalog():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    return catalog


@pytest.mark.parametrize(
    ("type_", "good", "bad"), HELD, ids=[f"{case[0]}-{number}" for number, case in enumerate(HELD)]
)
def test_the_placeholder_is_refused_at_every_depth(catalog, type_, good, bad):
    said = r"row 4: column 'v' is __debezium_unavailable_value: PostgreSQL did not say its value.*REPLICA IDENTITY FULL"
    flat = pa.table({"op": ["c", "d", "d", "u"], "id": range(4), "v": pa.array([good, bad, None, bad], type_)})
    with pytest.raises(InputError, match=said):
        catalog.append("t", pa.concat_tables([flat.slice(0, 3), flat.slice(3)]), operation_column="op")
    rows = flat.select(["id", "v"])
    after = pa.StructArray.from_arrays([column.combine_chunks() for column in rows.columns], ["id", "v"])
    messages = {"op": flat["op"], "before": rows.to_struct_array(), "after": pa.chunked_array([after])}
    with pytest.raises(InputError, match=said):
        catalog.append("t", pa.table(messages), format="debezium")
    assert catalog.read("t").num_rows == 0
    catalog.append(
        "t", pa.concat_tables([flat.slice(0, 1), flat.slice(1, 2)]), operation_column="op"
    )  # a delete says the old row
    assert catalog.read("t")["v"].to_pylist() == [good]


def test_the_placeholder_in_json(catalog, tmp_path):
    lines = [{"op": "c", "after": {"id": 1, "tags": ["a"]}}, {"op": "u", "after": {"id": 2, "tags": ["b", IT]}}]
    (tmp_path / "a.json").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(InputError, match="line 2: column 'tags' is __debezium_unavailable_value"):
        catalog.append_files("t", tmp_path / "a.json", format="debezium")
