"""Sort keys against their plain twin: their bytes order as the values do, null first, NaN last, either direction."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import reference_kernels as reference
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_columns import KINDS, SORTABLE, Kind, drawn_column

from deltacompact import _kernels as kernels


@settings(max_examples=examples(300), deadline=None)
@given(st.data(), st.integers(0, 8))
def test_sort_keys_are_those_of_the_twin(data: st.DataObject, rows: int) -> None:
    columns = [array for array, _ in data.draw(st.lists(drawn_column(SORTABLE, rows), max_size=3))]
    descending = [data.draw(st.booleans()) for _ in columns]
    result = kernels.sort_keys(columns, descending, rows)
    assert result.shape == (rows, sum(1 + reference.value_width(array.type) for array in columns))
    assert [line.tobytes() for line in result] == reference.sort_keys(columns, descending, rows)


@pytest.mark.parametrize("kind", SORTABLE, ids=lambda kind: str(kind[0]))
@settings(max_examples=examples(20), deadline=None)
@given(st.data())
def test_sort_key_bytes_order_as_values_do(kind: Kind, data: st.DataObject) -> None:
    array, _ = data.draw(drawn_column([kind], 6))
    order = [reference.sort_key_order(value) for value in reference.raw_values(array)]
    for descending in (False, True):
        keys = [line.tobytes() for line in kernels.sort_keys([array], [descending], 6)]
        for a in range(6):
            for b in range(6):
                if order[a][0] != order[b][0] or not descending:
                    assert (keys[a] < keys[b]) == (order[a] < order[b])
                else:
                    assert (keys[a] < keys[b]) == (order[a] > order[b])


VARIABLE = [kind for kind in KINDS if kind[1] in (9, 10)]


def encoded(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


TEXTS = st.text("a\0é", max_size=8) | st.sampled_from(["", "\0", "a", "a\0", "ab", "z" * 32, "é" * 16])


@settings(max_examples=examples(300), deadline=None)
@given(st.data(), st.integers(0, 8))
def test_sort_keys_of_strings_and_binaries_are_those_of_the_twin(data: st.DataObject, rows: int) -> None:
    columns, widths = [], []
    for kind, tag, values, make in data.draw(st.lists(st.sampled_from(SORTABLE + VARIABLE), max_size=3)):
        width = data.draw(st.integers(16, 32)) if tag in (9, 10) else None
        cells = values.filter(lambda value, width=width: width is None or len(encoded(value)) <= width)
        columns.append(data.draw(drawn_column([(kind, tag, cells, make)], rows))[0])
        widths.append(width)
    descending = [data.draw(st.booleans()) for _ in columns]
    result = kernels.sort_keys(columns, descending, rows, widths)
    assert [line.tobytes() for line in result] == reference.sort_keys(columns, descending, rows, widths)


@settings(max_examples=examples(300), deadline=None)
@given(TEXTS, TEXTS, st.integers(0, 32))
def test_sort_keys_of_strings_order_as_their_bytes_do(a: str, b: str, width: int) -> None:
    width = max(width, len(a.encode()), len(b.encode()))
    for column in (pa.array([a, b, None]), pa.array([a.encode(), b.encode(), None])):
        up = [line.tobytes() for line in kernels.sort_keys([column], [False], 3, [width])]
        down = [line.tobytes() for line in kernels.sort_keys([column], [True], 3, [width])]
        assert (up[0] < up[1], up[0] == up[1]) == (a.encode() < b.encode(), a == b)
        assert (down[0] > down[1], down[0] == down[1]) == (a.encode() < b.encode(), a == b)
        assert max(up[2], down[2]) < min(*up[:2], *down[:2])


def test_a_sort_key_string_longer_than_its_column_is_wide_is_refused() -> None:
    for column in (pa.array(["a", "abc"]), pa.array([b"a", b"abc"]).cast(pa.binary_view())):
        with pytest.raises(ValueError, match=r"^column 1, row 1: a value of 3 bytes is longer than 2$"):
            kernels.sort_keys([pa.array([1, 2]), column], [False, False], 2, [None, 2])
    for width in (33, -1, "2"):
        with pytest.raises(ValueError, match="widths: want an integer from 0 to 32"):
            kernels.sort_keys([pa.array(["a"])], [False], 1, [width])
    with pytest.raises(ValueError, match="1 columns but 0 widths"):
        kernels.sort_keys([pa.array(["a"])], [False], 1, [])


def test_every_nan_is_one_nan() -> None:
    for kind, code in ((np.float16, np.uint16), (np.float32, np.uint32), (np.float64, np.uint64)):
        bits = np.array([np.nan], kind).view(code)
        other = pa.array(np.concatenate([bits | 1, bits, ~bits | bits]).view(kind))
        assert len({line.tobytes() for line in kernels.sort_keys([other], [False], 3)}) == 1
        assert len(set(kernels.key_bytes([other], [2], 3))) == 1


def test_sort_keys_that_are_refused() -> None:
    for array in (pa.nulls(1), pa.array(["a"]).dictionary_encode(), pa.array([[1]])):
        with pytest.raises(ValueError, match=r"column 1: Arrow type .* cannot be a sort key"):
            kernels.sort_keys([pa.array([1]), array], [False, False], 1)
    for array in (pa.array(["a"]), pa.array([b"a"])):
        with pytest.raises(ValueError, match=r"column 1: Arrow type .* needs a width to be a sort key"):
            kernels.sort_keys([pa.array([1]), array], [False, False], 1)
    with pytest.raises(ValueError, match="1 columns but 0 directions"):
        kernels.sort_keys([pa.array([1])], [], 1)
    with pytest.raises(ValueError, match="column 0: 1 rows, want 3"):
        kernels.sort_keys([pa.array([1])], [False], 3)
