"""check --readable-by: what keeps engines from reading an Iceberg table, and what it tells to do helps."""

from __future__ import annotations

import json
import warnings

import polars
import pyarrow as pa
import pytest
from iceberg_fixtures import lake, silence_is_short  # noqa: F401  (fixtures)
from publications import configure

import deltacompact
from deltacompact import InputError, cli
from deltacompact.base.engines import ENGINES

T = "ns.t"
EVERYONE = [option for name in ENGINES for option in ("--readable-by", name)]


@pytest.fixture(params=[2, 3])
def table(request, lake, monkeypatch):
    """A table of both versions with an equality delete; its catalog's URI, and the version."""
    configure(lake, monkeypatch)
    lake.create(T, pa.schema([("id", pa.int64())]), version=request.param)
    lake.append(T, [{"id": number} for number in range(5)])
    lake.delete_by_key(T, {"id": [2]})
    return f"iceberg://{lake.name}", request.param


def unreadable(capsys, catalog):
    """The engines that cannot read the table, with their obstacles."""
    status = cli.run(["check", catalog, T, *EVERYONE, "--json"])
    found = json.loads(capsys.readouterr().out)
    told = {answer["engine"]: answer["obstacles"] for answer in found if not answer["readable"]}
    assert status == (4 if told else 0) and {answer["engine"] for answer in found} == ENGINES.keys()
    return told


def rows_by_pyiceberg(lake):
    return sorted(lake.catalog.load_table(T).scan().to_arrow()["id"].to_pylist())


def rows_by_polars(lake):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a plugin would plan faster
        return sorted(polars.scan_iceberg(lake.catalog.load_table(T)).collect()["id"].to_list())


def test_each_remedy_makes_the_table_readable(lake, table, capsys):
    catalog, version = table
    told = unreadable(capsys, catalog)
    if version == 3:
        (obstacle,) = told.pop("athena")
        assert (obstacle["kind"], obstacle["files"]) == ("format version 3", 0)
    assert told.keys() == {"databricks", "polars", "pyiceberg", "snowflake"}
    assert all(
        obstacle["kind"] == "equality-delete file" and obstacle["files"] == 1 for of in told.values() for obstacle in of
    )
    helps = {name for name, of in told.items() if "--mode convert" in of[0]["remedy"]}
    assert helps == told.keys() - ({"databricks"} if version == 2 else set())
    for rows_by in (rows_by_pyiceberg, rows_by_polars):
        with pytest.raises(ValueError, match="equality deletes"):
            rows_by(lake)
    assert cli.run(["compact", catalog, T, "--mode", "convert"]) == 0
    capsys.readouterr()
    told = unreadable(capsys, catalog)
    assert told.keys() == ({"databricks"} if version == 2 else {"athena"})
    assert not helps & told.keys()
    assert rows_by_pyiceberg(lake) == rows_by_polars(lake) == [0, 1, 3, 4], "what we say of PyIceberg and Polars is so"
    obstacle = told.popitem()[1][-1]
    assert obstacle["remedy"].startswith("compact --option delete-file-threshold=1 ")
    assert cli.run(["compact", catalog, T, "--option", "delete-file-threshold=1"]) == 0
    capsys.readouterr()
    assert unreadable(capsys, catalog).keys() == (set() if version == 2 else {"athena"})
    assert rows_by_pyiceberg(lake) == [0, 1, 3, 4]


def test_a_mode_writes_only_what_the_engine_reads(lake, table, capsys):
    catalog, version = table
    engine, unread = ("databricks", "position-delete files") if version == 2 else ("athena", "table of version 3")
    for mode in ("convert", "upsert"):
        assert cli.run(["compact", catalog, T, "--mode", mode, "--option", f"readable-by={engine}"]) == 2
        assert unread in (said := capsys.readouterr().err)
        assert ("use the mode rewrite" in said) == (version == 2)
    assert lake.state(T).snapshot.summary["operation"] == "delete", "nothing was written"
    table = deltacompact.open_catalog(lake.catalog).table(T)
    assert [obstacle.words for obstacle in table.check(readable_by="polars")["polars"]] == [
        "1 equality-delete file: compact --mode convert replaces them"
    ]
    assert table.compact(options={"readable-by": "polars"}).dead_by_key == 1
    assert table.check(readable_by=["polars", "spark"]) == {"polars": (), "spark": ()}
    assert rows_by_polars(lake) == [0, 1, 3, 4]
    with pytest.raises(InputError, match="readable-by: 'excel' is none of athena"):
        table.plan(options={"readable-by": "excel"})


def test_types_and_defaults_that_an_engine_does_not_read_are_named(lake):
    lake.create(T, pa.schema([("id", pa.int64())]), version=3)
    lake.append(T, [{"id": 1}])
    (schema,) = (json.loads(each.model_dump_json()) for each in lake.catalog.load_table(T).metadata.schemas)
    schema["fields"] += [
        {"id": 2, "name": "at", "required": False, "type": "timestamp_ns"},
        {"id": 3, "name": "v", "required": False, "type": "long", "initial-default": 7, "write-default": 7},
    ]
    lake.edit_metadata(T, {"schemas": [schema], "last-column-id": 3})
    table = deltacompact.open_catalog(lake.catalog).table(T)
    told = {
        name: [obstacle.kind for obstacle in of] for name, of in table.check(readable_by=list(ENGINES)).items() if of
    }
    nanoseconds = "column 'at' of type timestamp_ns"
    assert told == {
        "athena": ["format version 3"],
        "databricks": [nanoseconds, "column 'v' with an initial default"],
        "spark": [nanoseconds],
    }
    assert rows_by_polars(lake) == rows_by_pyiceberg(lake) == [1]
    assert lake.catalog.load_table(T).scan().to_arrow()["v"].to_pylist() == [7]


def test_it_is_told_in_words(lake, table, capsys):
    catalog, _ = table
    assert cli.run(["check", catalog, T, "--readable-by", "Snowflake", "--readable-by", "spark"]) == 4
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == (
        "Snowflake cannot read ns.t: 1 equality-delete file: compact --mode convert replaces them"
    )
    assert out.splitlines()[1] == "spark reads ns.t" and "cannot be read by Snowflake, as of" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--readable-by", "excel"], "'excel' is none of the engines that are known here: athena, "),
        (["--readable-by", "spark", "--health"], "ask one at a time"),
        (["--readable-by", "spark", "--quick"], "--quick"),
    ],
)
def test_what_cannot_be_asked_is_one_line(lake, table, capsys, options, said):
    assert cli.run(["check", table[0], T, *options]) == 2
    assert said in capsys.readouterr().err


def test_a_delta_stream_is_read_by_its_compacted_files(tmp_path, capsys):
    catalog = deltacompact.open_catalog(tmp_path)
    catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": [1]}))
    words = ["check", str(tmp_path), "t", "--readable-by", "duckdb"]
    assert cli.run(words) == 4
    assert "duckdb cannot read t: 1 delta: compact folds them" in capsys.readouterr().out
    catalog.table("t").compact()
    assert cli.run(words) == 0 and capsys.readouterr().out == "duckdb reads t\n"
    assert cli.run([*words, "--quick"]) == 2 and "reads no row: leave" in capsys.readouterr().err
