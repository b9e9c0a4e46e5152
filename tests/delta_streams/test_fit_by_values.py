"""Values decide whether files fit together: an append that no compaction could ever fold is refused, in either order.

at timestamp[us] of the year 9999, then timestamp[ns]       no nanoseconds go there
n uint64 above int64, then int64                            no integer type holds both
two sort columns of 20 bytes each, in two files             32 bytes is the most
"""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from counting_store import CountingStore
from stores import InterceptedStore
from tables import problems

from deltacompact import DeltaStreamCatalog, SchemaError, Settings, compact, open_catalog, retract, rollback
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import DeltaCompactError, InputError
from deltacompact.base.model import ContentType, OperationType, Partition, SchemaMode
from deltacompact.delta_streams.log import entries
from deltacompact.storage.memory import MemoryStore
from deltacompact.table import documents

LOCAL = Settings(executor="local", local_threads=1)
FAR_US, FAR_S = 253402300799000000, 253402300799
NEAR = 1_700_000_000


def struct(values: list[int], type_: pa.DataType) -> pa.Array:
    return pa.array([{"x": [value]} for value in values], pa.struct([("x", pa.list_(type_))]))


EXCLUDE = {
    "microseconds of year 9999": (pa.array([FAR_US], pa.timestamp("us")), pa.array([NEAR], pa.timestamp("ns"))),
    "seconds of year 9999": (pa.array([FAR_S], pa.timestamp("s")), pa.array([NEAR], pa.timestamp("ns"))),
    "instants of year 9999": (
        pa.array([FAR_US], pa.timestamp("us", "UTC")),
        pa.array([NEAR], pa.timestamp("ns", "UTC")),
    ),
    "before year 1677": (pa.array([-FAR_US], pa.timestamp("us")), pa.array([NEAR], pa.timestamp("ns"))),
    "long durations": (pa.array([FAR_US], pa.duration("us")), pa.array([NEAR], pa.duration("ns"))),
    "uint64 above int64": (pa.array([2**63], pa.uint64()), pa.array([-1], pa.int64())),
    "uint64 and int8": (pa.array([2**64 - 1], pa.uint64()), pa.array([-1], pa.int8())),
}
NESTED = {
    "in a struct and a list": (struct([FAR_US], pa.timestamp("us")), struct([NEAR], pa.timestamp("ns"))),
    "uint64 in a list": (pa.array([[2**63]], pa.list_(pa.uint64())), pa.array([[1]], pa.list_(pa.int64()))),
    "in a map": (
        pa.array([[("a", 2**63)]], pa.map_(pa.string(), pa.uint64())),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ),
    "in a dictionary": (pa.array([2**63], pa.uint64()).dictionary_encode(), pa.array([1], pa.int64())),
}
AGREE = {
    "microseconds of today": (pa.array([NEAR], pa.timestamp("us")), pa.array([NEAR], pa.timestamp("ns"))),
    "year 9999 in two units": (pa.array([FAR_S], pa.timestamp("s")), pa.array([FAR_US], pa.timestamp("us"))),
    "small uint64": (pa.array([2**63 - 1], pa.uint64()), pa.array([-1], pa.int64())),
    "large uint64 and uint8": (pa.array([2**64 - 1], pa.uint64()), pa.array([1], pa.uint8())),
    "a far value that is null": (pa.nulls(1, pa.timestamp("us")), pa.array([NEAR], pa.timestamp("ns"))),
}


def lake(sort: bool = False, store: Any = None) -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(store or MemoryStore())
    catalog.create_table("t", primary_keys=["id"], sort_keys=["v"] if sort else [])
    return catalog


def rows(key: int, values: pa.Array) -> pa.Table:
    return pa.table({"id": [key] * len(values), "v": values})


def folded(catalog: DeltaStreamCatalog) -> int:
    """Compact, check and read: the rows."""
    (session,) = compact("t", ["id"], delta_catalog_client=catalog, settings=LOCAL).sessions
    assert session.error is None and problems(catalog) == []
    return catalog.read("t").num_rows


@pytest.mark.parametrize("compacted", [False, True], ids=["deltas", "compacted"])
@pytest.mark.parametrize("sort", [False, True], ids=["value", "sort key"])
@pytest.mark.parametrize("other_first", [False, True])
@pytest.mark.parametrize("case", EXCLUDE)
@pytest.mark.slow
def test_values_that_exclude_each_other_never_meet_in_a_table(case, other_first, sort, compacted):
    first, second = EXCLUDE[case][::-1] if other_first else EXCLUDE[case]
    catalog = lake(sort)
    catalog.append("t", rows(1, first))
    if compacted:
        folded(catalog)
    cold = DeltaStreamCatalog(catalog.store)
    for each in (catalog, cold):
        with pytest.raises(SchemaError, match=r"the appended table: (column 'v'|key)"):
            each.append("t", rows(2, second))
    cold.append("t", rows(3, first))
    assert folded(catalog) == 2


@pytest.mark.parametrize("other_first", [False, True])
@pytest.mark.parametrize("case", NESTED)
def test_values_that_exclude_each_other_inside_of_nested_columns(case, other_first):
    first, second = NESTED[case][::-1] if other_first else NESTED[case]
    catalog = lake()
    catalog.append("t", rows(1, first))
    with pytest.raises(SchemaError, match="the appended table: column 'v"):
        catalog.append("t", rows(2, second))
    assert folded(catalog) == 1


@pytest.mark.parametrize("sort", [False, True], ids=["value", "sort key"])
@pytest.mark.parametrize("other_first", [False, True])
@pytest.mark.parametrize("case", AGREE)
def test_values_that_fit_are_taken_whatever_their_types(case, other_first, sort):
    first, second = AGREE[case][::-1] if other_first else AGREE[case]
    catalog = lake(sort)
    catalog.append("t", rows(1, first))
    catalog.append("t", rows(2, second))
    assert folded(catalog) == 2


def test_a_tombstones_sort_value_counts_after_its_row_is_gone():
    """No file has it any more, only the index."""
    catalog = lake(sort=True)
    catalog.append("t", rows(1, pa.array([FAR_US], pa.timestamp("us"))), operation="delete")
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    for each in (catalog, DeltaStreamCatalog(catalog.store)):
        with pytest.raises(SchemaError, match="does not hold the value 9999-12-31"):
            each.append("t", rows(2, pa.array([NEAR], pa.timestamp("ns"))))


@pytest.mark.parametrize(
    ("first", "deleted", "late"),
    [
        (
            pa.array([1], pa.timestamp("us")),
            pa.array([NEAR], pa.timestamp("ns")),
            pa.array([FAR_US], pa.timestamp("us")),
        ),
        (pa.array([1], pa.uint8()), pa.array([-1], pa.int64()), pa.array([2**63], pa.uint64())),
    ],
    ids=["finer", "signed"],
)
def test_the_type_of_a_tombstone_counts_beside_rows_of_another_type(first, deleted, late):
    """Only the index has it. Accepted rows that do not fit would block the partition."""
    catalog = lake(sort=True)
    catalog.append("t", rows(1, first))
    catalog.append("t", rows(2, deleted), operation="delete")
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    for each in (catalog, DeltaStreamCatalog(catalog.store)):
        with pytest.raises(SchemaError, match="which does not fit"):
            each.append("t", rows(3, late))
    assert folded(catalog) == 1


@pytest.mark.parametrize("reference", [False, True], ids=["copied", "referenced"])
@pytest.mark.parametrize("other_first", [False, True])
@pytest.mark.parametrize("extension", ["parquet", "bare.parquet", "feather", "orc"])
def test_files_are_measured_in_every_format(tmp_path, extension, other_first, reference):
    def written(name: str, table: pa.Table) -> Path:
        path = tmp_path / f"{name}.{extension}"
        if extension.endswith("parquet"):
            pq.write_table(table, path, write_statistics=extension == "parquet")
        elif extension == "feather":
            pa.feather.write_feather(table, path)
        else:
            pa.orc.write_table(table, path)
        return path

    far, near = rows(1, pa.array([FAR_S * 10**3], pa.timestamp("ms"))), rows(2, pa.array([NEAR], pa.timestamp("ns")))
    catalog = lake()
    if extension == "orc":  # it has nanoseconds only, and wraps
        catalog.append_files("t", written("a", near), reference=reference)
        with pytest.raises(SchemaError):
            catalog.append("t", far)
        return
    first, second = (near, far) if other_first else (far, near)
    catalog.append_files("t", written("a", first), reference=reference)
    with pytest.raises(SchemaError, match=rf"b\.{extension}: column 'v'"):
        catalog.append_files("t", written("b", second), reference=reference)
    assert folded(catalog) == 1


def test_of_two_racing_appends_whose_values_exclude_each_other_one_is_refused():
    """Both were looked at before either was committed: the loser of the slot looks again."""
    inner = MemoryStore()
    setup, rival = lake(store=inner), DeltaStreamCatalog(inner)
    setup.append("t", pa.table({"id": [0]}))
    raced: list[str] = []

    def intercept(kind: str, path: str, act: Any) -> Any:
        if kind == "put_if_absent" and "/stream/" in path and not raced:
            raced.append(path)
            rival.append("t", rows(1, pa.array([FAR_US], pa.timestamp("us"))))
        return act()

    late = DeltaStreamCatalog(InterceptedStore(inner, intercept))
    with pytest.raises(SchemaError, match="does not hold the value 9999-12-31 of earlier rows"):
        late.append("t", rows(2, pa.array([NEAR], pa.timestamp("ns"))))
    assert raced and len([*inner.list("t/data/")]) == 2, "what was refused is deleted"
    assert folded(setup) == 2


@pytest.mark.parametrize("late_first", [False, True])
def test_a_restatement_is_refused_where_a_delta_that_came_meanwhile_does_not_fit(late_first):
    far, near = pa.array([FAR_US], pa.timestamp("us")), pa.array([NEAR], pa.timestamp("ns"))
    restated, late = (near, far) if late_first else (far, near)
    inner = MemoryStore()
    setup, rival = lake(store=inner), DeltaStreamCatalog(inner)
    setup.append("t", pa.table({"id": [0]}))
    raced: list[str] = []

    def intercept(kind: str, path: str, act: Any) -> Any:
        if kind == "writer" and not raced:
            raced.append(path)
            rival.append("t", rows(1, late))
        return act()

    with pytest.raises(SchemaError, match="it was appended while the partition was restated: restate again"):
        DeltaStreamCatalog(InterceptedStore(inner, intercept)).restate("t", rows(2, restated))
    assert raced and len([*inner.list("t/data/")]) == 2
    assert folded(setup) == 2


def test_a_rollback_is_refused_where_a_delta_that_came_meanwhile_does_not_fit():
    inner = MemoryStore()
    setup, rival = lake(store=inner), DeltaStreamCatalog(inner)
    setup.append("t", rows(0, pa.array([FAR_US], pa.timestamp("us"))))
    folded(setup)
    old = setup.state("t", Partition()).version
    setup.restate("t", rows(1, pa.array([NEAR], pa.timestamp("ns"))))
    raced: list[str] = []

    def intercept(kind: str, path: str, act: Any) -> Any:
        if kind == "put_if_absent" and "/stream/3-" in path and not raced:
            raced.append(path)
            rival.append("t", rows(2, pa.array([NEAR], pa.timestamp("ns"))))
        return act()

    with pytest.raises(SchemaError, match="it was appended while the partition was rolled back: roll back again"):
        rollback(DeltaStreamCatalog(InterceptedStore(inner, intercept)), "t", old)
    assert raced and folded(setup) == 2


def test_the_files_of_a_restatement_must_fit_each_other_by_their_values():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"], sort_keys=["a", "b"])
    catalog.append("t", pa.table({"id": [1], "a": ["x"], "b": ["y"]}))
    long_a, long_b = pa.table({"id": [1], "a": ["a" * 20]}), pa.table({"id": [2], "b": ["b" * 20]})
    for tables in ([long_a, long_b], pa.table({"id": [1], "a": ["a" * 20], "b": ["b" * 20]})):
        with pytest.raises(SchemaError, match=r"appended table.*: sort keys take 40 bytes, 32 at most"):
            catalog.restate("t", tables)
    assert len([*catalog.store.list("t/data/")]) == 1
    assert folded(catalog) == 1


def test_files_of_one_schema_are_still_measured_one_by_one():
    """The second file's sort values are longer than those of the first, which has the same columns."""
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"], sort_keys=["a", "b"])
    schema = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    catalog.append("t", pa.table({"id": [1], "a": ["a" * 20], "b": ["b"]}, schema))
    with pytest.raises(SchemaError, match="sort keys take 40 bytes"):
        catalog.append("t", pa.table({"id": [2], "a": ["a"], "b": ["b" * 20]}, schema))
    assert folded(catalog) == 1


def older_than_the_keys(catalog: DeltaStreamCatalog, **columns: Any) -> None:
    """Deltas of partition 1 that were appended before partition 2's first compaction declared the keys."""
    catalog.create_table("t", ["p"])
    catalog.append("t", pa.table({"id": [1], **columns}), {"p": 1})
    catalog.append("t", pa.table({"id": [1], "a": ["x"], "b": ["y"]}), {"p": 2})
    compact("t", ["id"], ["a", "b"], partitions=[{"p": 2}], delta_catalog_client=catalog, settings=LOCAL)


def test_an_append_onto_a_delta_that_is_older_than_the_keys_is_measured_with_it():
    catalog = DeltaStreamCatalog(MemoryStore())
    older_than_the_keys(catalog, a=["a" * 20])
    for each in (catalog, DeltaStreamCatalog(catalog.store)):
        with pytest.raises(SchemaError, match="the appended table: sort keys take 40 bytes"):
            each.append("t", pa.table({"id": [2], "b": ["b" * 20]}), {"p": 1})
        with pytest.raises(SchemaError, match="key column 'id' is missing"):
            each.append("t", pa.table({"a": ["a"]}), {"p": 1})
    catalog.append("t", pa.table({"id": [2], "b": ["b" * 12]}), {"p": 1})
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert catalog.read("t").num_rows == 3 and problems(catalog) == []


def test_check_finds_a_healthy_partition_sound_though_a_delta_is_older_than_the_keys():
    """It advised to retract the delta."""
    catalog = DeltaStreamCatalog(MemoryStore())
    older_than_the_keys(catalog, a=["a long value"], b=["b"])
    assert problems(catalog) == []
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert catalog.read("t").num_rows == 2 and problems(catalog) == []


def test_files_that_a_writer_measured_before_the_keys_were_known_are_measured_at_the_commit():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"], sort_keys=["a", "b"])
    for number, columns in enumerate(({"a": "a" * 20}, {"b": "b" * 20})):
        path = f"t/data/{number}.parquet"
        table = pa.table({"id": [number], **{name: [value] for name, value in columns.items()}})
        with catalog.store.writer(path) as out:
            pq.write_table(table, out)
        size = catalog.store.stat(path).bytes
        file = DataFile(0, path, ContentType.PARQUET, 1, size, table.schema)
        commit = lambda file=file: catalog.commit("t", Partition(), [(OperationType.UPSERT, [file])])  # noqa: E731
        if number == 0:
            assert commit()[0].files[0].longest == (("a", 20),)
        else:
            with pytest.raises(SchemaError, match="sort keys take 40 bytes"):
                commit()


# Logs of release 0.1


@pytest.fixture
def forgetful(monkeypatch):
    """Log entries without far values, as release 0.1 wrote them."""

    def file_to_json(file: DataFile, schemas: Any) -> dict[str, Any]:
        return {name: value for name, value in documents.file_to_json(file, schemas).items() if name != "far"}

    def body(entry: Any, schemas: Any, write: Any = entries._body) -> dict[str, Any]:
        return {name: value for name, value in write(entry, schemas).items() if name != "far"}

    monkeypatch.setattr(entries, "file_to_json", file_to_json)
    monkeypatch.setattr(entries, "_body", body)


@pytest.mark.parametrize("compacted", [False, True], ids=["deltas", "compacted"])
@pytest.mark.parametrize("other_first", [False, True])
@pytest.mark.parametrize("case", ["microseconds of year 9999", "uint64 above int64"])
def test_what_an_old_log_does_not_tell_is_measured_where_a_type_changes(forgetful, case, other_first, compacted):
    first, second = EXCLUDE[case][::-1] if other_first else EXCLUDE[case]
    catalog = lake()
    catalog.append("t", rows(1, first))
    if compacted:
        folded(catalog)
    cold = DeltaStreamCatalog(catalog.store)
    cold.append("t", rows(2, first))
    with pytest.raises(SchemaError, match="column 'v'"):
        cold.append("t", rows(3, second))
    assert folded(cold) == 2


def let_in(catalog: DeltaStreamCatalog, monkeypatch: pytest.MonkeyPatch, *tables: pa.Table) -> list[int]:
    """Append as release 0.1 did, which looked at types alone; the positions."""
    from deltacompact.delta_streams.appending.far import FarOfStream

    with monkeypatch.context() as patch:
        patch.setattr(FarOfStream, "check", lambda *_: None)
        return [catalog.append("t", table).position for table in tables]


@pytest.mark.parametrize("sort", [False, True], ids=["value", "sort key"])
@pytest.mark.parametrize("compacted", [False, True], ids=["deltas", "compacted"])
def test_an_error_about_an_innocent_file_names_the_delta_that_blocks_and_a_way_out_that_works(
    monkeypatch, compacted, sort
):
    """Compacted values, in a file or in the index, do not fit the type that a later delta brought."""
    catalog = lake(sort)
    catalog.append("t", rows(1, pa.array([FAR_US], pa.timestamp("us"))))
    if compacted:
        folded(catalog)
    (good, bad) = let_in(
        catalog,
        monkeypatch,
        rows(2, pa.array([FAR_US], pa.timestamp("us"))),
        rows(3, pa.array([NEAR], pa.timestamp("ns"))),
    )
    (path,) = [f.path for d in catalog.state("t", Partition()).deltas if d.position == bad for f in d.files]
    told = []
    for ask in (lambda: catalog.read("t"), lambda: folded(catalog)):
        with pytest.raises(DeltaCompactError) as raised:
            ask()
        told.append(str(raised.value))
    told += [problem for problem in problems(catalog) if "retract" in problem]
    assert len(told) == 3
    for text in told:
        assert path in text and f"--position {bad}" in text and f"--position {good}" not in text, text
    retract(catalog, "t", bad)
    assert folded(catalog) == 2


def test_no_advice_deletes_a_delta_because_the_keys_of_a_first_compaction_are_misspelled():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t")
    catalog.append("t", pa.table({"id": [1]}))
    catalog.append("t", pa.table({"id": [2], "name": ["x"]}))
    for wrong in (["idd"], ["id", "name", "idd"]):
        with pytest.raises(InputError, match="has no column 'idd'") as raised:
            compact("t", wrong, delta_catalog_client=catalog, settings=LOCAL)
        assert "retract" not in str(raised.value)
    bad = catalog.append("t", pa.table({"other": [1]}))
    with pytest.raises(SchemaError, match=f"take out the upsert at stream position {bad.position}"):
        compact("t", ["id"], delta_catalog_client=catalog, settings=LOCAL)


def test_measuring_costs_no_request():
    """Rows are measured as they pass, and the log keeps what is far."""
    store = CountingStore(MemoryStore())
    catalog = lake(store=store)
    values = itertools.cycle([pa.array([FAR_US], pa.timestamp("us")), pa.array([NEAR], pa.timestamp("us"))])
    catalog.append("t", rows(0, next(values)))
    kinds = []
    for key in range(4):
        store.reset()
        catalog.append("t", rows(key, next(values)))
        kinds.append(sum(store.by_kind().values()))
    assert len(set(kinds)) == 1


@pytest.mark.parametrize("extension", ["parquet", "feather", "orc"])
def test_rows_of_another_partition_in_a_file_on_s3_are_refused_before_they_block(tmp_path, s3_bucket, extension):
    """Only files on this machine were looked at."""
    import boto3

    catalog = open_catalog(f"s3://{s3_bucket}/tables")
    catalog.create_table("t", ["day"], ["id"])
    write = {"parquet": pq.write_table, "feather": pa.feather.write_feather, "orc": pa.orc.write_table}[extension]
    for name, days in (("good", ["mon", "mon"]), ("bad", ["mon", "tue"])):
        write(pa.table({"id": [1, 2], "day": days}), tmp_path / name)
        boto3.client("s3", endpoint_url=os.environ.get("AWS_ENDPOINT_URL_S3")).upload_file(
            str(tmp_path / name), s3_bucket, f"landing/{name}.{extension}"
        )
    for reference in (False, True):
        with pytest.raises(SchemaError, match=rf"bad\.{extension}: column 'day' disagrees"):
            catalog.append_files("t", f"s3://{s3_bucket}/landing/bad.{extension}", {"day": "mon"}, reference=reference)
        catalog.append_files("t", f"s3://{s3_bucket}/landing/good.{extension}", {"day": "mon"}, reference=reference)
    assert catalog.read("t").num_rows == 2


def test_what_sparks_writer_wrote_goes_through_the_same_check():
    """Its tasks write files, and its driver commits them; neither needs Spark here."""
    from deltacompact.spark.options import WRITE_OPTIONS, WriteTarget
    from deltacompact.spark.writing import commit_written, write_rows

    assert "schema_mode" in WRITE_OPTIONS
    catalog = lake()
    catalog.append("t", rows(0, pa.array([NEAR], pa.timestamp("ns"))))
    target = WriteTarget(catalog, catalog.described("t"), (), OperationType.UPSERT, None, None, None)

    def write(table: pa.Table, to: WriteTarget = target) -> None:
        commit_written(to, [write_rows(to, table.to_batches())], None)

    with pytest.raises(SchemaError, match="column 'v' has the value 9999-12-31"):
        write(rows(1, pa.array([FAR_US], pa.timestamp("us"))))
    with pytest.raises(SchemaError, match="column 'more' is new"):
        write(pa.table({"id": [1], "more": [1]}), replace(target, schema_mode=SchemaMode.FIXED))
    write(pa.table({"id": pa.array([None, 2], pa.int64()), "more": [1, 2]}))
    (_, delta) = catalog.state("t", Partition()).deltas
    assert delta.null_keys == {"id": 1} and delta.files[0].far == ()
    assert folded(catalog) == 3
