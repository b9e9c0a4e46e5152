"""Arguments of the wrong type: one line that names the argument, an InputError, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import deltacompact
from deltacompact import Settings, compact, open_catalog
from deltacompact.base.errors import InputError
from deltacompact.base.table_keys import SortKey
from deltacompact.delta_streams.file_lists import publish
from deltacompact.delta_streams.versions import retract, rollback
from deltacompact.executors.local import LocalExecutor
from deltacompact.maintenance.check import check, rehash_table
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.storage.s3_access import S3Settings

ROWS = pa.table({"id": [1], "day": ["a"]})


@pytest.fixture
def lake(tmp_path):
    return filled(tmp_path / "lake")


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """A lake for all that is refused, because nothing is written then."""
    return filled(tmp_path_factory.mktemp("untouched"))


def filled(folder):
    catalog = open_catalog(folder)
    catalog.create_table("t", ["day"], ["id"])
    catalog.append("t", ROWS, {"day": "a"})
    return catalog


CALLS = {
    "create_table": lambda lake, **given: lake.create_table(**{"table_id": "new", "primary_keys": ["id"], **given}),
    "append": lambda lake, **given: lake.append(
        **{"table_id": "t", "tables": ROWS, "partition": {"day": "a"}, **given}
    ),
    "append_files": lambda lake, **given: lake.append_files(
        **{"table_id": "t", "sources": ["x.parquet"], "partition": {"day": "a"}, **given}
    ),
    "read": lambda lake, **given: lake.read(**{"table_id": "t", **given}),
    "scan": lambda lake, **given: lake.scan(**{"table_id": "t", **given}),
    "restate": lambda lake, **given: lake.restate(
        **{"table_id": "t", "tables": ROWS, "partition": {"day": "a"}, **given}
    ),
    "compact": lambda lake, **given: compact(**{"source_table_id": "t", "delta_catalog_client": lake, **given}),
    "rollback": lambda lake, **given: rollback(
        lake, **{"table_id": "t", "version": "0", "partition": {"day": "a"}, **given}
    ),
    "retract": lambda lake, **given: retract(
        lake, **{"table_id": "t", "position": 0, "partition": {"day": "a"}, **given}
    ),
    "check": lambda lake, **given: check(lake, **{"table_id": "t", **given}),
    "vacuum": lambda lake, **given: vacuum(lake, **{"table_id": "t", **given}),
    "publish": lambda lake, **given: publish(lake, **{"table_id": "t", **given}),
    "rehash_table": lambda lake, **given: rehash_table(
        lake, **{"table_id": "t", "hash_bucket_count": 2, "executor": LocalExecutor(Settings()), **given}
    ),
    "changes": lambda lake, **given: lake.table(given.pop("table_id", "t")).changes(
        **{"partition": {"day": "a"}, **given}
    ),
    "diff": lambda lake, **given: lake.table(given.pop("table_id", "t")).diff(**{"partition": {"day": "a"}, **given}),
    "export": lambda lake, **given: lake.table(given.pop("table_id", "t")).export(**{"target": "/none/x.csv", **given}),
    "open_catalog": lambda _, **given: open_catalog(**{"uri": "/tmp", **given}),
    "Settings": lambda _, **given: Settings(**given),
    "S3Settings": lambda _, **given: S3Settings(**given),
    "SortKey.of": lambda _, **given: SortKey.of(**given),
    "validate": lambda lake, **given: _validate(lake, **{"table_id": "t", **given}),
}


def _validate(lake, **given):
    from deltacompact.spark.validate import validate

    return validate(lake, **given)


WITH_A_TABLE = [
    name for name in CALLS if name not in ("open_catalog", "Settings", "S3Settings", "SortKey.of", "compact")
]
WITH_A_PARTITION = [name for name in WITH_A_TABLE if name != "create_table"]

WRONG = [
    *((name, "table_id", value) for name in WITH_A_TABLE for value in (7, None, b"t", ["t"])),
    *((name, "partition", value) for name in WITH_A_PARTITION for value in ("day=a", 7, ["a"], {"day": ["a"]})),
    *(("create_table", "partition_keys", value) for value in (7, [1], {"day": 1}, [None])),
    *(("create_table", "primary_keys", value) for value in (7, [1], {"id": 1}, b"id", "", [""])),
    *(
        ("create_table", "sort_keys", [value])
        for value in (7, ("a", "b", "c"), ("a", 1), (1, "ascending"), {}, None, "")
    ),
    *(("create_table", "sort_keys", value) for value in (7, {"at": "descending"})),
    *(("create_table", "tombstone_retention", value) for value in ("7", 1.5, True, -1, 2**63)),
    *(("append", "operation", value) for value in (7, None, "merge")),
    *((name, "token", value) for name in ("append", "append_files") for value in (7, b"x", ["x"], "")),
    *(("append_files", "sources", value) for value in (["x.unknown"], "x.unknown", 7, [7], [], "", {"x.csv": 1})),
    *((name, "columns", value) for name in ("read", "scan") for value in ("id", 7, [1], [None], {"id": 1}, [])),
    *((name, "version", value) for name in ("read", "scan", "rollback") for value in (0, 1.5, b"0", "")),
    *((name, "filter", value) for name in ("read", "scan") for value in (7, "id > 1", [("id",)])),
    ("export", "version", 0),
    *((name, end, value) for name in ("changes", "diff") for end in ("from_", "to") for value in (1, 1.5, b"0", True)),
    *(("export", "target", value) for value in (7, None, b"x.csv")),
    *(("compact", "source_table_id", value) for value in (7, None)),
    *(("compact", "primary_keys", value) for value in (7, [1], [], {"id": 1})),
    *(("compact", "sort_keys", value) for value in (7, [7], [("a", "b", "c")], [("a", "up")])),
    *(("compact", "partitions", value) for value in ({"day": "a"}, "day=a", 7, [7], ["day=a"], [{"night": 1}], [{}])),
    *(("compact", "hash_bucket_count", value) for value in (True, 0, 1.5, "4", 1_000_001)),
    *(
        ("compact", name, value)
        for name in ("rows_per_compacted_file", "rows_per_primary_key_index_file")
        for value in (0, 10**30)
    ),
    *(("compact", "desired_sla", value) for value in ("60", True, 0)),
    *(("compact", "settings", value) for value in ({"executor": "local"}, 7, Settings)),
    *(("compact", "delta_catalog_client", value) for value in ("./lake", 7)),
    *(("compact", "destination_compacted_table_id", value) for value in (7, "", ["d"])),
    *(("compact", "compacted_file_content_type", value) for value in (7, None, "xlsx", "json")),
    *(("compact", "event_sinks", value) for value in (7, [7], print)),
    *(("compact", "purge", value) for value in ("yes", 1)),
    *(
        ("compact", "sns_event_topic_arn", value)
        for value in ("events", 7, "", "arn:aws:s3:::bucket", "arn:aws:sns:eu-west-1:12:events")
    ),
    *(("retract", "position", value) for value in ("7", 1.5, True, None)),
    ("check", "quick", "yes"),
    *(("vacuum", "age_min_s", value) for value in ("7", None, float("nan"), True)),
    *(("vacuum", name, value) for name in ("force", "dry_run") for value in (1, "no")),
    *(("rehash_table", "hash_bucket_count", value) for value in (0, "2", True, 2.0, 1_000_001)),
    ("rehash_table", "executor", "local"),
    *(("open_catalog", "uri", value) for value in (7, b"/tmp", ["/tmp"], "", "ftp://host/x", "s3://")),
    *(("open_catalog", "s3", value) for value in ({"region": "x"}, "x")),
    *(("Settings", "executor", value) for value in ("spark", 7, None)),
    *(("Settings", "compression", value) for value in ("zip", 7, "", "ZSTD9")),
    *(("Settings", "ray_address", value) for value in (6379, "", ["x"])),
    *(("Settings", "rewrite_dead_fraction", value) for value in ("x", 1.1, float("nan"), True)),
    *(("Settings", "ray_wait_s", value) for value in ("x", None, -1)),
    *(
        ("Settings", name, value)
        for name in ("read_mb_per_s", "write_mb_per_s", "requests_per_s")
        for value in ("x", 0, -1, True)
    ),
    *(
        ("Settings", name, value)
        for name in ("rows_per_round", "ray_cpus", "local_threads")
        for value in ("x", 0, 1.5, 10**30)
    ),
    *(("Settings", name, None) for name in ("row_group_rows", "task_retries", "local_rows_max")),
    *(("S3Settings", name, value) for name in ("endpoint_url", "region", "profile") for value in (7, "")),
    *(("S3Settings", "max_attempts", value) for value in ("10", 0, None)),
    *(("S3Settings", "timeout_s", value) for value in ("10", 0, None)),
    *(("SortKey.of", "value", value) for value in (7, None, (), ("a",), ("a", "b", "c"), {"a": "b"})),
]


@pytest.mark.parametrize(("call", "argument", "value"), WRONG, ids=lambda value: repr(value)[:40])
@pytest.mark.slow
def test_a_wrong_type_is_refused_in_one_line_before_anything_is_written(untouched, call, argument, value):
    before = [stat.path for stat in untouched.store.list("")]
    with pytest.raises(InputError) as error:
        CALLS[call](untouched, **{argument: value})
    said = str(error.value)
    assert said and "\n" not in said and len(said) < 400
    assert [stat.path for stat in untouched.store.list("")] == before


def test_what_is_right_in_other_clothes_is_taken(lake):
    lake.create_table("new", "day", ("id",), "at")
    assert lake.table("new").keys.sort == (SortKey("at"),)
    assert lake.read("t", columns=(name for name in ["id"])).column_names == ["id"]
    assert compact("t", (name for name in ["id"]), delta_catalog_client=lake, partitions=({"day": "a"},)).sessions
    assert check(lake, "t", {"day": "a"})[0].problems == ()
    assert vacuum(lake, "t", {"day": "a"}, dry_run=True)[0].deleted == ()
    assert publish(lake, "t", {"day": "a"})[0].rows == 1
    (Path(lake.where) / "x.csv").write_text("id\n7\n")
    for path in (f"{lake.where}x.csv", Path(lake.where) / "x.csv"):
        assert lake.append_files("t", path, {"day": "a"}).rows == 1
    assert Settings(compression="none").compression == "none" and Settings(rows_per_round=None)


def test_the_message_names_argument_and_value(lake):
    for message, call, given in [
        (r'token 7 is neither a text nor a pair like \("producer", 7\)', "append", {"token": 7}),
        (r"version is 0 \(int\), it must be a string", "read", {"version": 0}),
        (r"columns is 'id' \(str\), it must be a list", "read", {"columns": "id"}),
        (r"primary_keys holds 1 \(int\), it must hold strings", "compact", {"primary_keys": [1]}),
        (r"partitions is \{'day': 'a'\} \(dict\), it must be a list", "compact", {"partitions": {"day": "a"}}),
        (r"sort key \('a', 'b', 'c'\) is neither a name nor a pair", "create_table", {"sort_keys": [("a", "b", "c")]}),
        (
            r"sort key 'ts DESC': write 'ts' to keep the row with the greatest",
            "create_table",
            {"sort_keys": ["ts DESC"]},
        ),
        (r"compression 'zip' is not a codec", "Settings", {"compression": "zip"}),
        (r"sources is 7 \(int\), it must be a list", "append_files", {"sources": 7}),
        (r"sources is 7 \(int\), it must be a string or a path", "append_files", {"sources": [7]}),
        (
            r"filter \[\('id',\)\] is neither an expression of pyarrow.compute nor a list of ",
            "read",
            {"filter": [("id",)]},
        ),
        (r"filter .*: \"=>\" is not a valid operator", "read", {"filter": [("id", "=>", 1)]}),
        (r"SNS topic 'events' is not an ARN", "compact", {"sns_event_topic_arn": "events"}),
    ]:
        with pytest.raises(InputError, match=message):
            CALLS[call](lake, **given)


def test_a_catalog_in_the_place_of_the_keys_is_named(lake):
    with pytest.raises(
        InputError, match=r"primary_keys is open_catalog\('/.*\(DeltaStreamCatalog\), it must be a list"
    ):
        compact("t", lake)


def test_the_package_says_what_it_has():
    assert set(deltacompact.__all__) <= set(dir(deltacompact))
    for name in deltacompact.__all__:
        assert getattr(deltacompact, name) is not None
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = deltacompact.nothing
