"""JSON lines in several blocks are read as in one: pyarrow compares the kinds of values inside of a block only."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltacompact import InputError, open_catalog
from deltacompact.base.model import ContentType
from deltacompact.tabular.text_files import read_text

KINDS = [1, "a", True, [1], {"x": 1}]
LEAVES = (
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 2**53 + 1, 1e300, "2026-12-01", "a", ""])
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner), max_leaves=4
)
OF_ONE_KIND = st.sampled_from(
    [
        st.integers(-9, 9) | st.sampled_from([0.5, 2**53 + 1]),
        st.sampled_from(["2026-12-01", "2026-12-01 10:00:00.5", "a"]),
        st.lists(st.none() | st.integers(-9, 9) | st.just(0.5), max_size=2),
        st.dictionaries(st.sampled_from("xy"), st.none() | st.integers(-9, 9), max_size=2),
    ]
)
ROWS = (VALUES.map(st.just) | OF_ONE_KIND).flatmap(
    lambda values: st.lists(st.dictionaries(st.sampled_from("vw"), st.none() | values), min_size=1, max_size=6)
)
KNOWN = st.none() | st.dictionaries(
    st.sampled_from("vw"), st.sampled_from([pa.int64(), pa.string(), pa.struct([("x", pa.float64())])])
).map(lambda types: pa.schema(list(types.items())))


def rows_in_blocks(rows, block_bytes, known=None):
    return text_in_blocks("\n".join(map(json.dumps, rows)), block_bytes, known)


def text_in_blocks(text, block_bytes, known):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deltacompact.tabular.file_text.TEXT_BLOCK_BYTES", block_bytes)
        table = read_text(pa.BufferReader(text.encode()), "a.jsonl", ContentType.JSON, known, None)
    table.validate(full=True)  # an append does so, too
    return table


@given(ROWS | st.lists(st.dictionaries(st.sampled_from("vw"), VALUES), min_size=1, max_size=6), KNOWN)
def test_blocks_of_a_line_are_read_as_one_block(rows, known):
    try:
        whole = rows_in_blocks(rows, 1 << 20, known)
    except (InputError, pa.ArrowInvalid):
        with pytest.raises((InputError, pa.ArrowInvalid)):
            rows_in_blocks(rows, 1, known)
    else:
        found = rows_in_blocks(rows, 1, known)
        assert found.schema == whole.schema
        assert found.equals(whole)


@pytest.mark.parametrize("as_messages", [False, True])
def test_a_list_may_begin_with_a_null(tmp_path, as_messages):
    """The file was refused: pyarrow lost the null, where it inferred the type."""
    rows = [{"id": 1, "v": [None, 1]}, {"id": 2, "v": [2, None, 3]}]
    said = [{"op": "c", "after": row} if as_messages else row for row in rows]
    (path := tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, said)))
    table = open_catalog(tmp_path / "lake").create_table("t", primary_keys=["id"])
    table.append_files(path, **({"format": "debezium"} if as_messages else {}))
    assert table.read().sort_by("id").to_pylist() == rows


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("later", KINDS)
def test_another_kind_of_value_in_a_later_block_is_refused(first, later):
    """5 became {"x": null}. Lists among objects ended the process."""
    rows = [{"v": first}] * 5 + [{"v": later}]
    if type(first) is type(later):
        assert rows_in_blocks(rows, 30).to_pylist() == rows
    else:
        with pytest.raises(InputError, match=r"line 6: 'v' is an? \w+, in earlier rows an? \w+"):
            rows_in_blocks(rows, 30)


@pytest.mark.parametrize("line", ["null", "nullx", "null,", 'null\t{"v": 1}', "null{", "nullable"])
@pytest.mark.parametrize("known", [None, pa.schema([("v", pa.int64())])])
def test_a_null_that_begins_a_block_is_refused(known, line):
    """pyarrow ended the process."""
    for block_bytes in (1, 30):
        with pytest.raises(InputError, match="line 6 begins with null, but it must hold one JSON object"):
            text_in_blocks("\n".join(['{"v": 1}'] * 5 + [line] * 9), block_bytes, known)


@pytest.mark.parametrize("line", ["nullx", "null,", ' null\t{"op": "c", "after": {"id": 1}}', "null{", "null null"])
@pytest.mark.parametrize("before", ["", '{"op": "c", "after": {"id": 1}}\n'])
def test_a_null_that_begins_a_message_is_refused(tmp_path, before, line):
    """Kafka's console consumer prints the keys of messages so: pyarrow ended the process."""
    (path := tmp_path / "a.jsonl").write_text(f"{before}{line}\n" * 2)
    table = open_catalog(tmp_path / "lake").create_table("t", primary_keys=["id"])
    with pytest.raises(InputError, match=rf"a\.jsonl, line {1 + bool(before)} is no JSON, as each line must be"):
        table.append_files(path, format="debezium")


def test_a_null_is_refused_before_a_value_that_has_not_its_columns_type():
    """To find the column, the text is parsed again: pyarrow ended the process."""
    with pytest.raises(InputError, match="line 7 begins with null"):
        rows_in_blocks([{"v": "x"}] * 6 + [None] * 9, 30, pa.schema([("v", pa.int64())]))


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("line", ['{"id": 1},', '{"id": 1} x'])
def test_a_line_with_more_than_an_object_is_named(catalog, tmp_path, line, number):
    (path := tmp_path / "a.jsonl").write_text('{"id": 0}\n' * (number - 1) + f"{line}\n" + '{"id": 2}\n')
    with pytest.raises(InputError, match=rf"a\.jsonl: line {number} is no JSON object"):
        catalog.create_table("t").append_files(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": 3, "v": "x"}', "line 2: 'v' is a string, in earlier rows a number"),
        ('{"id": 3, "v"', "line 2 is no JSON object"),
        ('{"id": 3} 4', "line 2 is no JSON object"),
        ('{"id": 3}{"v": "x"}', "line 2: 'v' is a string, in earlier rows a number"),
    ],
)
@pytest.mark.parametrize("gap", ["", " \t"])
def test_several_objects_of_a_line_are_not_blamed_for_another_line(catalog, tmp_path, line, said, gap):
    two = f'{gap}{{"id": 1, "v": 1}}{gap}{{"id": 2, "v": 2}}{gap}\n'
    (path := tmp_path / "a.jsonl").write_text(two)
    catalog.create_table("t").append_files(path)
    assert catalog.read("t").num_rows == 2
    path.write_text(two + line)
    with pytest.raises(InputError, match=rf"a\.jsonl: {said}"):
        catalog.create_table("other").append_files(path)


@pytest.mark.parametrize("text", ['{"v": [\n1,\nnull\n]}\n', '{"v": "}",\n"w":\nnull}\n'])
def test_a_null_inside_of_an_object_may_begin_a_line(text):
    assert read_text(pa.BufferReader(text.encode()), "a.json", ContentType.JSON, None, None).num_rows == 1


def test_messages_with_another_kind_of_value_in_a_later_block_are_refused(tmp_path, monkeypatch):
    """Of the first rows, the 5 was lost."""
    monkeypatch.setattr("deltacompact.tabular.file_text.TEXT_BLOCK_BYTES", 200)
    lines = [
        json.dumps({"type": "insert", "data": {"id": number, "j": 5 if number < 9 else {"x": 1}}})
        for number in range(10)
    ]
    (path := tmp_path / "a.jsonl").write_text("\n".join(lines))
    table = open_catalog(tmp_path / "lake").create_table("t", primary_keys=["id"])
    with pytest.raises(InputError, match=r"a\.jsonl, line 10 cannot be read: .*changed from number to object"):
        table.append_files(path, format="maxwell")
    path.write_text("\n".join(lines[:9]))
    table.append_files(path, format="maxwell")
    assert table.read()["j"].to_pylist() == [5] * 9
