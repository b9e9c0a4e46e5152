"""A file that was appended and then changed: references are refused by name, copies are what was copied."""

from __future__ import annotations

import os
import shutil
import threading
import time

import boto3
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from deltacompact import InputError, Settings, compact, open_catalog
from deltacompact.base.model import Partition
from deltacompact.delta_streams.appending import source_files
from deltacompact.maintenance.check import check
from deltacompact.storage.local import LocalStore
from deltacompact.storage.throttle import Pace, paced
from deltacompact.tabular import stamps

LOCAL = Settings(executor="local")
ROWS = pa.table({"id": [1, 2, 3], "v": [10, 20, 30]})
OTHER = pa.table({"id": [1, 2, 3], "v": [10, 21, 30]})
"""As many bytes, and the same statistics: no footer tells the difference."""


def written(table, path):
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".feather":
            pa.feather.write_feather(table, path)
        case ".orc":
            pa.orc.write_table(table, path)
        case ".csv":
            pa.csv.write_csv(table, path)
        case ".jsonl":
            path.write_text("".join(f'{{"id": {r["id"]}, "v": {r["v"]}}}\n' for r in table.to_pylist()))
    return path


@pytest.fixture
def catalog(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    return catalog


@pytest.fixture(params=[".csv", ".jsonl", ".parquet", ".feather", ".orc"])
def reference(request, tmp_path, catalog):
    path = written(ROWS, tmp_path / f"tuesday{request.param}")
    catalog.append_files("t", [path], reference=True, stream_position=90)
    return path


def refused(catalog, *names):
    """By every reader, with the position and the way out."""
    command = "deltacompact retract"
    for reads in (
        lambda: catalog.read("t"),
        lambda: compact("t", delta_catalog_client=catalog, settings=LOCAL),
    ):
        with pytest.raises(InputError, match="was changed since it was appended") as raised:
            reads()
        for name in (*names, "stream position 90", "append the file again", command):
            assert name in str(raised.value)
    (result,) = check(catalog, "t", quick=True)
    assert any("was changed since" in problem and command in problem for problem in result.problems)


def test_a_reference_that_stays_is_read(catalog, reference):
    assert catalog.read("t").sort_by("id").equals(ROWS)
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert catalog.read("t").sort_by("id").equals(ROWS)


def test_a_reference_that_grew_is_refused_by_name(catalog, reference):
    with reference.open("ab") as sink:
        sink.write(b'{"id":4,"v":40}\n' if reference.suffix == ".jsonl" else b"4,40\n")
    refused(catalog, reference.name, "bytes, now it has")


def test_a_reference_that_was_edited_to_the_same_length_is_refused_by_name(catalog, reference):
    before = reference.stat().st_size
    written(OTHER, reference)
    assert reference.stat().st_size == before
    refused(catalog, reference.name)


def test_a_file_that_was_written_just_now_is_looked_at_after_the_tick(tmp_path):
    """Edits within one tick of the file system's clock have one time: the second one would not show."""
    path = tmp_path / "a.csv"
    for _ in range(5):
        path.write_text("id\n1\n")
        stat = stamps.settled(LocalStore(tmp_path), "a.csv")
        assert time.time() - stat.modified_s >= 0.01


def test_a_restored_copy_with_another_time_is_the_same_file(catalog, reference, tmp_path):
    shutil.copyfile(reference, tmp_path / "backup")
    reference.unlink()
    shutil.copyfile(tmp_path / "backup", reference)
    os.utime(reference, (1, 1))
    assert catalog.read("t").sort_by("id").equals(ROWS)
    assert check(catalog, "t")[0].problems == ()


def test_entries_without_stamps_are_still_read_and_their_size_is_compared(tmp_path, catalog, monkeypatch):
    """As an older release wrote them."""
    from deltacompact.delta_streams.log import entries as log_entries

    original = log_entries.file_to_json
    plain = lambda file, schemas: {k: v for k, v in original(file, schemas).items() if k not in ("stamp", "name")}  # noqa: E731
    monkeypatch.setattr(log_entries, "file_to_json", plain)
    path = written(ROWS, tmp_path / "old.csv")
    catalog.append_files("t", [path], reference=True)
    fresh = open_catalog(tmp_path / "lake")
    assert fresh.state("t", Partition()).deltas[0].files[0].stamp is None
    assert fresh.read("t").sort_by("id").equals(ROWS)
    path.write_text(path.read_text() + "4,40\n")
    with pytest.raises(InputError, match="was changed"):
        fresh.read("t")


@pytest.mark.parametrize("pace", [Pace(), Pace(read_bytes_per_s=1e9)])
def test_a_file_that_is_written_to_while_it_is_read_is_refused(catalog, reference, pace):
    from deltacompact.tabular import files

    (delta,) = catalog.state("t", Partition()).deltas
    with (
        pytest.raises(InputError, match="was changed since it was appended"),
        files.opened(paced(catalog.store, pace), delta.files[0]),
    ):
        written(OTHER, reference)


def test_a_file_that_is_written_to_while_it_is_appended_by_reference_is_refused(tmp_path, catalog, monkeypatch):
    path = written(ROWS, tmp_path / "a.csv")
    hashed = stamps.sha256

    def slow(source):
        digest = hashed(source)
        written(OTHER, path)
        return digest

    monkeypatch.setattr(stamps, "sha256", slow)
    with pytest.raises(InputError, match=r"a.csv was written to while it was read"):
        catalog.append_files("t", [path], reference=True)
    assert catalog.partitions("t") == []


def growing(monkeypatch, grow):
    """The source is written to after it was looked at and before it is copied."""
    original = source_files.copy_into

    def copy_into(*arguments):
        grow()
        return original(*arguments)

    monkeypatch.setattr(source_files, "copy_into", copy_into)


def test_a_copy_is_described_by_what_was_copied(tmp_path, catalog, monkeypatch):
    path = written(ROWS, tmp_path / "a.csv")
    growing(monkeypatch, lambda: path.write_text(path.read_text() + "4,40\n"))
    delta = catalog.append_files("t", [path])
    (file,) = delta.files
    assert (file.rows, file.bytes) == (4, catalog.store.stat(file.path).bytes)
    assert (file.name, file.stamp) == (str(path), None)
    assert catalog.read("t").num_rows == 4
    assert check(catalog, "t")[0].problems == ()


def test_a_copy_of_the_same_length_is_described_by_what_was_copied(tmp_path, catalog, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("id,v\n1,10\n2,20\n")
    growing(monkeypatch, lambda: path.write_text("id,v\n1,1000020\n"))
    assert catalog.append_files("t", [path]).rows == 1


def test_a_copy_that_became_unfit_is_refused_and_deleted(tmp_path, catalog, monkeypatch):
    catalog.append("t", ROWS)
    before = [stat.path for stat in catalog.store.list("t/")]
    path, first = written(ROWS, tmp_path / "b.parquet"), written(ROWS, tmp_path / "a.parquet")
    for content, said in ((b"PAR1 torn", "b.parquet was written to while it was copied"), (None, "'id' is missing")):
        written(ROWS, path)

        def change(content=content):
            if content is None:
                pq.write_table(pa.table({"other": [1]}), path)
            else:
                path.write_bytes(content)

        with pytest.MonkeyPatch.context() as patch:
            growing(patch, change)
            with pytest.raises(InputError, match=said):
                catalog.append_files("t", [first, path])
        assert [stat.path for stat in catalog.store.list("t/")] == before


def test_an_append_that_is_interrupted_leaves_nothing(tmp_path, catalog):
    def tables():
        yield ROWS
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalog.append("t", tables())
    assert [stat.path for stat in catalog.store.list("t/data/")] == []


# On S3


@pytest.fixture
def on_s3(s3_catalog_uri):
    bucket = s3_catalog_uri.split("/")[2]
    catalog = open_catalog(s3_catalog_uri)
    catalog.create_table("t", primary_keys=["id"])
    return catalog, boto3.client("s3"), bucket


def test_an_object_that_was_written_again_is_refused_by_its_etag(on_s3, tmp_path):
    catalog, client, bucket = on_s3
    path = written(ROWS, tmp_path / "a.parquet")
    client.upload_file(str(path), bucket, "in/a.parquet")
    catalog.append_files("t", [f"s3://{bucket}/in/a.parquet"], reference=True, stream_position=90)
    stamp = catalog.state("t", Partition()).deltas[0].files[0].stamp
    assert stamp.etag and stamp.modified_s is None and stamp.sha256 is None
    client.upload_file(str(path), bucket, "in/a.parquet")
    assert catalog.read("t").num_rows == 3, "the same bytes have the same ETag"
    client.upload_file(str(written(OTHER, path)), bucket, "in/a.parquet")
    refused(catalog, "a.parquet", "ETag")


def test_a_text_object_with_another_etag_is_known_by_its_bytes(on_s3, tmp_path):
    catalog, client, bucket = on_s3
    client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"id,v\n1,10\n")
    catalog.append_files("t", [f"s3://{bucket}/in/a.csv"], reference=True, stream_position=90)
    upload = client.create_multipart_upload(Bucket=bucket, Key="in/a.csv")["UploadId"]
    named = {"Bucket": bucket, "Key": "in/a.csv", "UploadId": upload}
    part = client.upload_part(**named, PartNumber=1, Body=b"id,v\n1,10\n")
    client.complete_multipart_upload(**named, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    assert catalog.read("t").num_rows == 1, "a restored copy has another ETag and the same bytes"
    client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"id,v\n1,20\n")
    refused(catalog, "a.csv")


def test_comparing_etags_costs_no_request(on_s3):
    catalog, client, bucket = on_s3
    client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"id,v\n1,10\n")
    catalog.append_files("t", [f"s3://{bucket}/in/a.csv"], reference=True)
    asked = []
    from deltacompact.storage.s3 import S3Store

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Store, "stat", lambda self, path: asked.append(path))
        assert catalog.read("t").num_rows == 1
    assert asked == []


def test_a_paced_reader_compares_too(on_s3):
    from deltacompact.delta_streams.snapshots import everything
    from deltacompact.reading.live_rows import live_parts
    from deltacompact.storage.throttle import Pace, paced

    catalog, client, bucket = on_s3
    client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"id,v\n1,10\n")
    catalog.append_files("t", [f"s3://{bucket}/in/a.csv"], reference=True)
    table = catalog.described("t")
    snapshot = everything("t", Partition(), catalog.state("t", Partition()))
    store = paced(catalog.store, Pace(read_bytes_per_s=1e9))
    schema = pa.schema([("id", pa.int64())])

    def rows():
        parts = live_parts(store, snapshot, table, schema).parts
        return sum(batch.num_rows for part in parts for batch in part.tables())

    assert rows() == 1
    client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"id,v\n1,20\n")
    with pytest.raises(InputError, match="was changed"):
        rows()


@pytest.mark.parametrize("step", ["inspected", "copied"])
def test_files_for_a_remote_store_are_looked_at_and_copied_side_by_side(tmp_path, catalog, monkeypatch, step):
    """10,000 files took a few requests each, one after another."""
    catalog.at_once = 64
    both, usual = threading.Barrier(2, timeout=10), getattr(source_files.SourceFiles, step)

    def waiting(*arguments):
        both.wait()
        return usual(*arguments)

    monkeypatch.setattr(source_files.SourceFiles, step, waiting)
    paths = [written(pa.table({"id": [number]}), tmp_path / f"{number}.parquet") for number in range(4)]
    delta = catalog.append_files("t", paths)
    assert [os.path.basename(file.name) for file in delta.files] == [path.name for path in paths]


def test_of_files_that_are_copied_side_by_side_none_stays_if_one_fails(tmp_path, catalog, monkeypatch):
    catalog.at_once, usual = 64, source_files.SourceFiles.copied

    def failing(files, source, types):
        if source.name.endswith("9.parquet"):
            raise InputError("the ninth")
        return usual(files, source, types)

    monkeypatch.setattr(source_files.SourceFiles, "copied", failing)
    paths = [written(pa.table({"id": [number]}), tmp_path / f"{number}.parquet") for number in range(12)]
    with pytest.raises(InputError, match="the ninth"):
        catalog.append_files("t", paths)
    assert not [path for path in (tmp_path / "lake").rglob("*") if path.suffix == ".parquet"]
