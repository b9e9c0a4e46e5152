"""Which columns a filter needs, however it is given."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.base.errors import InputError
from deltacompact.reading import selection
from deltacompact.reading.selection import Selected, expression_of

TERMS = (
    lambda name: pc.field(name) > 3,
    lambda name: pc.field(name).isin([1, 2]),
    lambda name: pc.is_null(pc.add(pc.field(name), pc.field(name))),
)


@given(st.data(), st.integers(1, 40))
def test_an_expression_needs_the_columns_that_it_names(data, count):
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(count)])
    used = data.draw(st.lists(st.sampled_from(schema.names), min_size=1, max_size=6))
    terms = [data.draw(st.sampled_from(TERMS))(name) for name in used]
    expression = reduce(data.draw(st.sampled_from((and_, or_))), terms)
    selected = Selected.of("t", schema, ["c0"], expression)
    assert selected.asked == tuple(name for name in schema.names if name in used)
    assert selected.needed.names == [name for name in schema.names if name in {"c0", *used}]


def test_an_expression_over_a_wide_table_reads_its_columns_alone(monkeypatch):
    """A table of 201 columns was read whole, and no file of it skipped."""
    tried, computes = [], selection._computes
    monkeypatch.setattr(selection, "_computes", lambda *given: tried.append(given) or computes(*given))
    schema = pa.schema(
        [(f"c{number}", pa.int64()) for number in range(1_000)] + [("s", pa.struct([("x", pa.int64())]))]
    )
    selected = Selected.of("t", schema, ["c0"], (pc.field("c500") > 3) & (pc.field("s", "x") == 2))
    assert selected.asked == ("c500", "s")
    assert selected.needed.names == ["c0", "c500", "s"]
    assert len(tried) < 50


@pytest.mark.parametrize(
    "place",
    [
        pc.field(1) > 5,
        pc.field(0, 1) == "x",
        ~(pc.field("c0") == "y") & (pc.field(1) == 2),
        pc.match_substring(pc.field("s"), '"') & (pc.field(2) == 5) & pc.match_substring(pc.field("s"), "x"),
        (pc.field('a"b') == 1) & (pc.field(2) == 5) & (pc.field('c"d') == 1),
        (pc.field("a") == b"\xff") & (pc.field(2) == 5),
        pc.field("s", 1) == 5,
        pc.struct_field(pc.field("s"), [0]) == 5,
        pc.struct_field(pc.field("s"), pc.field("x", 0)) == 5,
    ],
    ids=str,
)
def test_an_expression_that_names_a_column_by_its_position_is_refused(place):
    """A file has its columns in other places: the filter took another column, and rows without an error."""
    with pytest.raises(InputError, match="is a column by its position: name it"):
        expression_of(place)


def test_a_text_that_looks_like_a_position_is_a_text():
    texts = ("FieldPath(1)", 'a" FieldPath(1) "', "\\", '\\" FieldPath(2)', ["FieldPath(1)"], {"x": "FieldPath(1)"})
    views = [pa.scalar("FieldPath(1)", type_) for type_ in (pa.string_view(), pa.large_string())]
    structs = [pc.struct_field(pc.field("a"), name) == 1 for name in ("x", "FieldPath(1)")]
    lists = [pc.field("a").isin(["FieldPath(1)", "b"]), pc.field("FieldPath(1)", "[0]") == "[0]"]
    for named in (*(pc.field("a") == value for value in (*texts, *views)), *structs, *lists):
        assert expression_of(named) is named
