"""A partition is the same one after its column was widened, and values at the ends of a type have the right partition.

manifest 1    price decimal(9, 2)     stored as 4 bytes     a.parquet in the partition 1.50
manifest 2    price decimal(18, 2)    stored as 8 bytes     a delete in the partition 1.50: it applies to a
"""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from iceberg_lake import sorted_rows
from naive_reader import NaiveReader
from plan_json import plan_to_json
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType, NestedField
from table_t import compact

import deltacompact
from deltacompact.base.errors import InputError
from deltacompact.iceberg.table import manifest_schemas
from deltacompact.iceberg.table.content_files import SpecField
from deltacompact.iceberg.table.partition_values import in_words
from deltacompact.iceberg_modes.rewrite.plan_document import plan_from_json

T = "ns.t"
WIDENED = {
    "decimal": (DecimalType(9, 2), DecimalType(18, 2), [Decimal("1.50"), Decimal("-1.50"), None], [150, -150, None]),
    "decimal of 38 digits": (DecimalType(20, 2), DecimalType(38, 2), [Decimal("-0.01")], [-1]),
    "int": (IntegerType(), LongType(), [-7, None], [-7, None]),
    "float": (FloatType(), DoubleType(), [0.25], [0.25]),
}


def widened(lake, kind, transform=None):
    """Two rows, 1 and 2, in each partition; the column is widened; row 1 is deleted; rows 2 and 3 are appended."""
    before, after, values, partitions = WIDENED[kind]
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", before))
    spec = PartitionSpec(PartitionField(2, 1000, transform or IdentityTransform(), "p"))
    lake.create(T, schema, partition_spec=spec)
    lake.append(T, [{"id": number, "p": value} for value in values for number in (1, 2)])
    with lake.catalog.load_table(T).update_schema() as update:
        update.update_column("p", field_type=after)
    for partition in partitions:
        lake.delete_by_key(T, {"id": [1]}, (partition,))
    lake.append(T, [{"id": number, "p": value} for value in values for number in (2, 3)])


def live(lake):
    return sorted_rows(NaiveReader(lake, T).rows())


def maintain(lake):
    return deltacompact.open_catalog(lake.catalog).maintain(T, rewrite_manifests=True)


@pytest.mark.parametrize("kind", WIDENED)
@pytest.mark.slow
def test_no_row_comes_back_and_no_duplicate_stays_in_a_partition_whose_column_was_widened(lake, kind):
    values = WIDENED[kind][2]
    widened(lake, kind)
    expected = live(lake)
    assert len(expected) == 3 * len(values)
    compact(lake, "convert")
    assert live(lake) == expected
    maintain(lake)
    assert live(lake) == expected
    compact(lake, "upsert", **{"key-columns": "id", "scope": "partition"})
    newest = [row for number, row in enumerate(expected) if row not in expected[:number]]
    assert live(lake) == newest and len(newest) == 2 * len(values)
    compact(lake, "rewrite", **{"rewrite-all": "true"})
    assert live(lake) == newest
    state = lake.state(T)
    assert (len(state.data), len(state.deletes)) == (len(values), 0)
    assert lake.rows(T) == lake.rows(T, "main") and len(lake.rows(T)) == len(newest)


@pytest.mark.parametrize("kind", WIDENED)
@pytest.mark.slow
def test_a_rewrite_applies_a_delete_that_was_written_after_the_column_was_widened(lake, kind):
    widened(lake, kind)
    expected = live(lake)
    compact(lake, "rewrite", **{"rewrite-all": "true"})
    assert live(lake) == expected
    assert not lake.state(T).deletes


def test_manifests_of_both_types_become_one(lake):
    widened(lake, "decimal")
    expected = live(lake)
    maintain(lake)
    state = lake.state(T)
    assert len({entry.file.partition for entry in state.data}) == 3
    assert len(state.manifests) == 2, "one of data, one of deletes"
    assert [manifest.partitions[0]["lower_bound"] for manifest in state.manifests] == [b"\xff\x6a"] * 2
    assert live(lake) == expected


def test_files_are_chosen_by_widened_decimals(lake):
    widened(lake, "decimal")
    chosen = lake.prepared(T, rewrite_all=True, where="p < 0").plan()
    assert [(group.partition, len(group.inputs)) for group in chosen.groups] == [((-150,), 2)]


def test_a_plan_of_the_version_before_names_decimals_as_bytes(lake):
    widened(lake, "decimal")
    plan = lake.prepared(T, rewrite_all=True).plan()
    text = plan_to_json(plan)
    body = json.loads(text)["plan"]
    assert sorted(map(str, (group["partition"][0] for group in body["groups"]))) == ["-150", "150", "None"]
    from deltacompact.storage.checksummed import checksum

    for group in body["groups"]:
        (value,) = group["partition"]
        group["partition"] = [None if value is None else {"hex": value.to_bytes(4, "big", signed=True).hex()}]
    old = json.loads(text) | {"plan": body, "sha256": checksum(body)}
    assert plan_from_json(json.dumps(old), lake.state(T)) == plan


# Rows that move to another spec

LARGE = Decimal("9" * 35 + ".37")


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (IdentityTransform(), {int("9" * 35 + "37"), -int("9" * 35 + "37"), 1}),
        (TruncateTransform(10), {int("9" * 35 + "30"), -int("9" * 35 + "40"), 0}),
    ],
)
def test_decimals_of_more_than_28_digits_have_exact_partitions(lake, transform, expected):
    lake.create(T, Schema(NestedField(1, "id", LongType()), NestedField(2, "p", DecimalType(38, 2))))
    lake.append(
        T, [{"id": number, "p": value} for number, value in enumerate((LARGE, LARGE.copy_negate(), Decimal("0.01")))]
    )
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_field("p", transform, "part")
    lake.rewrite(T, rewrite_all=True, output_spec_id=1)
    assert {entry.file.partition[0] for entry in lake.state(T).data} == expected
    assert len(lake.rows(T)) == 3
    assert lake.catalog.load_table(T).scan(row_filter=f"p = {LARGE}").to_arrow()["id"].to_pylist() == [0]
    for where in (f"p = {LARGE}", f"p >= {LARGE}"):
        chosen = lake.prepared(T, rewrite_all=True, where=where).plan()
        assert [group.partition for group in chosen.groups] == [(max(expected),)], where


@pytest.mark.parametrize(
    ("type_", "least"),
    [(IntegerType(), -(2**31)), (LongType(), -(2**63)), (DecimalType(3, 1), Decimal("-99.9"))],
)
@pytest.mark.parametrize("others", [[], [7]])
def test_a_number_that_cannot_be_truncated_is_refused_in_one_line(lake, type_, least, others):
    """Engines turn over to the greatest numbers there, and their `id < 0` would miss the row."""
    lake.create(T, Schema(NestedField(1, "id", type_)))
    lake.append(
        T,
        pa.Table.from_pylist(
            [{"id": value} for value in (least, *others)], lake.catalog.load_table(T).schema().as_arrow()
        ),
    )
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_field("id", TruncateTransform(10), "part")
    with pytest.raises(InputError, match=rf"truncate\[10\] of {least} in column 'id' is less than any"):
        lake.rewrite(T, rewrite_all=True, output_spec_id=1)
    assert len(lake.rows(T)) == 1 + len(others)


def as_java_defines_types(fields):
    """The second of two fields of one decimal type has its name alone."""
    known: set[str] = set()

    def once(type_):
        if isinstance(type_, list):
            return [once(member) for member in type_]
        if not isinstance(type_, dict) or type_["name"] not in known:
            known.update([type_["name"]] if isinstance(type_, dict) else [])
            return type_
        return type_["name"]

    return [{**part, "type": once(part["type"])} for part in fields]


def test_a_delete_applies_where_a_manifest_only_names_the_type_of_its_second_decimal(lake, monkeypatch):
    decimal = DecimalType(9, 2)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", decimal), NestedField(3, "q", decimal))
    fields = [PartitionField(number, 998 + number, IdentityTransform(), name) for number, name in ((2, "p"), (3, "q"))]
    lake.create(T, schema, partition_spec=PartitionSpec(*fields))
    lake.append(T, [{"id": number, "p": Decimal("1.50"), "q": Decimal("-2.25")} for number in (1, 2)])
    with monkeypatch.context() as patch:
        patch.setattr(manifest_schemas, "_defined_once", as_java_defines_types)
        lake.delete_by_key(T, {"id": [1]}, (150, -225))
    assert {entry.file.partition for entry in (*lake.state(T).data, *lake.state(T).deletes)} == {(150, -225)}
    maintain(lake)
    compact(lake, "convert")
    assert [row["id"] for row in lake.rows(T)] == [2]
    compact(lake, "rewrite", **{"rewrite-all": "true"})
    assert [row["id"] for row in lake.rows(T)] == [2]


@pytest.mark.parametrize(
    ("transform", "type_", "value", "words"),
    [
        ("day", {"type": "int", "logicalType": "date"}, 20458, "2026-01-05"),
        ("identity", {"type": "int", "logicalType": "date"}, -1, "1969-12-31"),
        ("month", "int", 671, "2025-12"),
        ("year", "int", 56, "2026"),
        ("hour", "int", 20458 * 24 + 7, "2026-01-05T07"),
        ("identity", {"type": "long", "logicalType": "timestamp-micros"}, 1_500_000, "1970-01-01T00:00:01.500000"),
        ("identity", {"type": "fixed", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}, 150, "1.50"),
        ("bucket[4]", "int", 3, "3"),
        ("identity", "boolean", True, "True"),
        ("identity", "string", "a/b", "a/b"),
        ("day", {"type": "int", "logicalType": "date"}, None, None),
    ],
)
def test_a_partition_in_words_is_what_people_write(transform, type_, value, words):
    assert in_words(value, SpecField(1000, 1, "p", transform, {"type": ["null", type_]})) == words
