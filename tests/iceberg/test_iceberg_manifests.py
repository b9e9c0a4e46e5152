"""Manifests and manifest lists: what is read is what was written, and the rules about sequence numbers hold."""

from __future__ import annotations

from dataclasses import fields, replace

import pyarrow as pa
import pytest
from manifest_entries import DATA, POSITIONS, SPEC, TERMS, VECTOR, listed
from pyiceberg.manifest import ManifestEntryStatus

from deltacompact.base.errors import CorruptionError
from deltacompact.iceberg.table import avro, manifests
from deltacompact.iceberg.table.content_files import (
    Content,
    ManifestContent,
    ManifestEntry,
    Status,
)
from deltacompact.iceberg.table.manifests import NEW
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable

DELETES = replace(DATA, content=Content.EQUALITY_DELETES, path="e.parquet", equality_ids=(2, 1), sort_order_id=None)


def read_back(entries, content, version=2, **others):
    data, line = manifests.write_manifest(entries, SPEC, content, TERMS[version], "m.avro")
    read = manifests.read_manifest(data, replace(line, sequence_number=9, **others))
    return read, line


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("file", [DATA, DELETES, POSITIONS])
def test_every_field_survives(file, version):
    entries = [ManifestEntry(Status.EXISTING, 5, 3, 4, file)]
    assert read_back(entries, file.manifest_content, version)[0] == entries


def test_rule_24_version_3_carries_row_ids_and_vectors_on():
    entries = [ManifestEntry(Status.EXISTING, 5, 3, 4, replace(DATA, first_row_id=100))]
    assert read_back(entries, ManifestContent.DATA, 3, first_row_id=7)[0] == entries
    entries = [ManifestEntry(Status.EXISTING, 5, 3, 4, VECTOR)]
    assert read_back(entries, ManifestContent.DELETES, 3)[0] == entries


def test_rule_24_version_2_carries_the_referenced_data_file_on():
    (read,), _ = read_back([ManifestEntry(Status.EXISTING, 5, 3, 4, POSITIONS)], ManifestContent.DELETES)
    assert read.file.referenced_data_file == "file:/t/data/a.parquet"


def test_rule_03_an_added_file_has_its_own_data_sequence_number_and_inherits_the_other():
    (read,), line = read_back([ManifestEntry(Status.ADDED, 77, 5, None, DATA)], ManifestContent.DATA)
    assert (read.sequence_number, read.file_sequence_number) == (5, 9)
    assert line.min_sequence_number == 5


def test_an_added_file_inherits_both_sequence_numbers_and_the_snapshot():
    (read,), line = read_back([ManifestEntry(Status.ADDED, None, None, None, DATA)], ManifestContent.DATA)
    assert (read.snapshot_id, read.sequence_number, read.file_sequence_number) == (77, 9, 9)
    assert (line.sequence_number, line.min_sequence_number) == (NEW, NEW)


@pytest.mark.parametrize("status", [Status.EXISTING, Status.DELETED])
def test_rule_04_existing_and_deleted_entries_carry_their_sequence_number(status):
    with pytest.raises(CorruptionError, match=r"a\.parquet: only an added file may inherit"):
        manifests.write_manifest([ManifestEntry(status, 5, None, 4, DATA)], SPEC, ManifestContent.DATA, TERMS[2], "m")


@pytest.mark.parametrize(
    ("entry", "read"),
    [
        (ManifestEntry(Status.ADDED, 77, None, None, DATA), (9, 9)),
        (ManifestEntry(Status.EXISTING, 5, 3, None, DATA), (3, None)),
        (ManifestEntry(Status.DELETED, 77, 3, None, DATA), (3, None)),
        (ManifestEntry(Status.DELETED, 77, None, None, DATA), (9, None)),
    ],
)
def test_iceberg_up_to_1_0_stored_no_file_sequence_numbers(entry, read):
    known = replace(entry, sequence_number=3) if entry.status is Status.DELETED else entry
    data, line = manifests.write_manifest([known], SPEC, ManifestContent.DATA, TERMS[2], "m.avro")
    (record,), schema, _ = avro.records(data, "m.avro")
    fields = [field for field in schema["fields"] if field["field-id"] != 4]
    record = {name: value for name, value in record.items() if name != "file_sequence_number"}
    stored = avro.avro_bytes(
        {**schema, "fields": fields}, [record | {"sequence_number": entry.sequence_number}], {"format-version": "2"}
    )
    (found,) = manifests.read_manifest(stored, replace(line, sequence_number=9))
    assert (found.sequence_number, found.file_sequence_number, found.added_at) == (*read, read[1] or read[0])


def test_a_live_file_that_is_not_new_has_a_sequence_number():
    data, line = manifests.write_manifest(
        [ManifestEntry(Status.ADDED, 5, None, None, DATA)], SPEC, ManifestContent.DATA, TERMS[2], "m.avro"
    )
    (record,), schema, _ = avro.records(data, "m.avro")
    stored = avro.avro_bytes(schema, [record | {"status": int(Status.EXISTING)}], {"format-version": "2"})
    with pytest.raises(CorruptionError, match=r"^m\.avro is not a manifest: .*a live file has no sequence number"):
        manifests.read_manifest(stored, replace(line, sequence_number=9))


def test_a_manifest_list_counts_files_and_rows():
    entries = [ManifestEntry(status, 77, 3, 3, DATA) for status in (Status.ADDED, Status.EXISTING, Status.EXISTING)]
    entries.append(ManifestEntry(Status.DELETED, 77, 1, 1, DATA))
    _, line = read_back(entries, ManifestContent.DATA)
    assert (line.added_files, line.existing_files, line.deleted_files) == (1, 2, 1)
    assert (line.added_rows, line.existing_rows, line.deleted_rows) == (10, 20, 10)
    assert line.min_sequence_number == 3  # of live files


def test_partition_summaries_bound_the_partitions():
    other = replace(DATA, partition=(-3, -1, 1.5, None))
    entries = [ManifestEntry(Status.EXISTING, 5, 3, 4, file) for file in (DATA, other)]
    day, price, ratio, name = read_back(entries, ManifestContent.DATA)[1].partitions
    assert (day["lower_bound"], day["upper_bound"]) == (b"\xfd\xff\xff\xff", b"\x40\x4b\x4c\x00")
    assert (price["lower_bound"], price["upper_bound"]) == (b"\xff", b"\1\0")
    assert (ratio["contains_nan"], ratio["contains_null"]) == (True, False)
    assert ratio["lower_bound"] == ratio["upper_bound"] == b"\0\0\0\0\0\0\xf8\x3f"
    assert (name["contains_null"], name["lower_bound"], name["upper_bound"]) == (True, "ä/b".encode(), "ä/b".encode())


@pytest.mark.parametrize("version", [2, 3])
def test_a_manifest_list_survives(version):
    lines = [
        listed(partitions=({"contains_null": True, "contains_nan": None, "lower_bound": b"a", "upper_bound": b"b"},)),
        listed("d.avro", content=ManifestContent.DELETES, sequence_number=NEW, min_sequence_number=NEW),
    ]
    lines[0] = replace(lines[0], first_row_id=1000 if version == 3 else None)
    data = manifests.write_manifest_list(lines, version, 77, None, 12, first_row_id=1000)
    expected = [lines[0], replace(lines[1], sequence_number=12, min_sequence_number=12)]
    assert manifests.read_manifest_list(data, "list") == expected


@pytest.mark.parametrize("data", [b"", b"Obj\1", b"Obj\1" + b"\xff" * 40, b"PAR1 what is this"])
def test_damaged_manifests_are_named(data):
    with pytest.raises(CorruptionError, match=r"^m\.avro is not a readable Avro file"):
        manifests.read_manifest(data, listed())
    with pytest.raises(CorruptionError, match=r"^list is not a readable Avro file"):
        manifests.read_manifest_list(data, "list")


@pytest.mark.parametrize(
    ("written", "flipped", "why"),
    [
        (b'"file_format", "type"', b'"file_format", "tipe"', "not a readable Avro file"),
        (b'"field-id": 134', b'"field-id": 174', "has DATA among DELETES"),
        (b'"field-id": 135', b'"field-id": 175', "an equality delete without columns"),
        (b'"field-id": 103', b'"field-id": 403', "no field 103"),
    ],
)
def test_a_header_of_which_a_bit_has_flipped_makes_no_deletes_ineffective(written, flipped, why):
    entries = [ManifestEntry(Status.EXISTING, 5, 3, 4, DELETES)]
    data, line = manifests.write_manifest(entries, SPEC, ManifestContent.DELETES, TERMS[2], "m.avro")
    assert data.count(written) == 1
    with pytest.raises(CorruptionError, match=rf"^m\.avro is not .*{why}|^m\.avro is {why}"):
        manifests.read_manifest(data.replace(written, flipped), line)


@pytest.mark.parametrize("number", [b"500", b"515", b"517"])
def test_a_manifest_list_of_which_a_field_has_no_number_of_its_own_is_named(number):
    data = manifests.write_manifest_list([listed()], 2, 77, None, 12, first_row_id=None)
    flipped = data.replace(b'"field-id": ' + number, b'"field-id": 9' + number[1:])
    with pytest.raises(CorruptionError, match=rf"^list is not a manifest list: .*no field {number.decode()}"):
        manifests.read_manifest_list(flipped, "list")


def test_a_manifest_cut_short_is_named():
    data, line = manifests.write_manifest(
        [ManifestEntry(Status.EXISTING, 5, 3, 4, DATA)] * 50, SPEC, ManifestContent.DATA, TERMS[2], "m.avro"
    )
    with pytest.raises(CorruptionError, match=r"^m\.avro is not a readable Avro file"):
        manifests.read_manifest(data[:-30], line)


def test_another_avro_file_is_no_manifest():
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
    with pytest.raises(CorruptionError, match=r"^m\.avro is not a manifest"):
        manifests.read_manifest(avro.avro_bytes(schema, [{"a": 1}], {}), listed())


def test_pyiceberg_reads_what_we_write_and_we_what_it_writes(lake):
    """PyIceberg's own reader sees the same entries: in all fields that it knows."""
    lake.create("ns.t", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    lake.append("ns.t", [{"id": 1, "name": "a"}, {"id": 2, "name": None}])
    lake.delete_by_key("ns.t", {"id": [2]})
    ours = lake.state("ns.t")
    table = lake.catalog.load_table("ns.t")
    theirs = [
        (manifest, entry)
        for manifest in table.current_snapshot().manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
    assert len(theirs) == 2
    for entry, (_, their) in zip((*ours.data, *ours.deletes), theirs, strict=True):
        file = their.data_file
        assert their.status is ManifestEntryStatus.ADDED
        assert (entry.sequence_number, entry.file_sequence_number) == (
            their.sequence_number,
            their.file_sequence_number,
        )
        known = {
            "path": file.file_path,
            "rows": file.record_count,
            "file_bytes": file.file_size_in_bytes,
            "value_counts": file.value_counts,
            "null_value_counts": file.null_value_counts,
            "lower_bounds": file.lower_bounds,
            "upper_bounds": file.upper_bounds,
            "equality_ids": tuple(file.equality_ids or ()),
        }
        assert {name: getattr(entry.file, name) for name in known} == known


def test_a_commit_carries_a_branchs_retention_on(lake):
    lake.create("ns.t", pa.schema([("id", pa.int64())]))
    lake.append("ns.t", [{"id": 1}])
    table = lake.catalog.load_table("ns.t")
    table.manage_snapshots().create_branch(
        table.current_snapshot().snapshot_id, "audit", max_ref_age_ms=10**9, min_snapshots_to_keep=3
    ).commit()
    lake.delete_by_key("ns.t", {"id": [1]}, branch="audit")
    ref = IcebergTable.load(lake.catalog, "ns.t").metadata.refs["audit"]
    assert (ref.max_ref_age_ms, ref.min_snapshots_to_keep) == (10**9, 3)
    assert {field.name for field in fields(ref)} >= {"kind", "snapshot_id"}
