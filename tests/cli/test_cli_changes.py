"""changes and diff on the command line, of both kinds of tables."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_fixtures import lake, silence_is_short  # noqa: F401  (fixtures)
from publications import configure

import deltacompact
from deltacompact import cli
from deltacompact.storage.local import LocalStore

T = "ns.t"


@pytest.fixture
def streams(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "streams")
    table = catalog.create_table(T, primary_keys=["id"])
    table.append(pa.table({"id": [1, 2], "v": ["a", "b"]}))
    table.compact()
    table.append(pa.table({"id": [2, 3], "v": ["c", "d"]}))
    table.append(pa.table({"id": [1]}), operation="delete")
    return [str(tmp_path / "streams"), T]


@pytest.fixture
def iceberg(lake, monkeypatch):
    configure(lake, monkeypatch)
    lake.create(T, pa.schema([("id", pa.int64()), ("v", pa.string())]))
    lake.append(T, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    lake.delete_by_key(T, {"id": [1, 2]})
    lake.append(T, [{"id": 2, "v": "c"}, {"id": 3, "v": "d"}])
    return [f"iceberg://{lake.name}", T]


def since(iceberg, capsys):
    assert cli.run(["history", *iceberg, "--json"]) == 0
    return str(json.loads(capsys.readouterr().out)[0]["snapshot_id"])


def rows(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def told(found):
    return sorted((row["id"], row["v"], row["_change_type"]) for row in found)


NET = [(1, "a", "delete"), (2, "b", "update_before"), (2, "c", "update_after"), (3, "d", "insert")]


def test_changes_of_both_kinds_are_alike(streams, iceberg, capsys):
    begin = since(iceberg, capsys)
    for words in ([*streams, "--from", "0"], [*iceberg, "--from", begin, "--key", "id"]):
        assert cli.run(["changes", *words, "--before"]) == 0
        assert told(rows(capsys)) == NET
        assert cli.run(["changes", *words, "--per-commit", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["rows"]) >= 3
        assert cli.run(["changes", *words, "--where", "id > 2", "--columns", "id"]) == 0
        ((row),) = rows(capsys)
        assert row["id"] == 3 and list(row)[1:] == [
            "_change_type",
            "_change_ordinal",
            "_commit_snapshot_id",
            "_commit_timestamp",
        ]


def test_diff_counts(streams, iceberg, capsys):
    begin = since(iceberg, capsys)
    for words in ([*streams, "0"], [*iceberg, begin, "--key", "id"]):
        assert cli.run(["diff", *words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [found[name] for name in ("inserts", "deletes", "updates")] == [1, 1, 1]
        assert found["files_added"] == 2 and found["files_removed"] == 0
        assert cli.run(["diff", *words]) == 0
        assert capsys.readouterr().out == "1 insert, 1 delete, 1 update; files +2 -0\n"


def test_into_a_file(streams, tmp_path, capsys):
    assert cli.run(["changes", *streams, "--out", str(tmp_path / "changes.parquet")]) == 0
    assert capsys.readouterr().out == f"wrote 2 changes to {tmp_path}/changes.parquet\n"
    assert sorted(pq.read_table(tmp_path / "changes.parquet")["_change_type"].to_pylist()) == ["insert", "insert"]


def test_bad_input_is_one_line(streams, iceberg, capsys, tmp_path):
    for words, message in (
        ([*streams, "--from", "7"], "no version begins with '7'"),
        ([*streams, "--from", "0", "--key", "no"], "has no column 'no' for a key (columns: id, v)"),
        ([*streams, "--branch", "b"], "--branch is for tables of Iceberg catalogs"),
        ([*iceberg, "--partition", "day=1"], "--partition is for delta streams"),
        ([*iceberg, "--from", "7"], "has no snapshot '7' (the oldest that is left: "),
        ([*iceberg, "--columns", "no"], "has no column 'no'"),
        ([*streams, "--out", str(tmp_path / "x.docx")], "x.docx"),
    ):
        assert cli.run(["changes", *words]) == 2, words
        out, err = capsys.readouterr()
        assert out == "" and message in err and err.count("\n") == 1
    assert not (tmp_path / "x.docx").exists()


@pytest.mark.parametrize(
    "words", [["--from", "0"], ["--from", "2020-01-01"], ["--bookmark", "b", "--from", "2020-01-01"]]
)
def test_of_a_table_without_data_nothing_changed(tmp_path, capsys, words):
    lake = str(tmp_path / "lake")
    assert cli.run(["create", lake, "t", "--primary-key", "id"]) == 0
    capsys.readouterr()
    assert cli.run(["changes", lake, "t", *words]) == 0
    assert capsys.readouterr() == ("", "nothing changed\n")


def test_a_poll_that_finds_nothing_reads_no_history(streams, capsys, monkeypatch):
    """Without --json it read the log of every version of every partition, to print that nothing changed."""
    table, got = deltacompact.open_catalog(streams[0]).table(T), []
    for number in range(4, 7):
        table.append(pa.table({"id": [number]}))
        table.compact()
    read = LocalStore.get
    monkeypatch.setattr(LocalStore, "get", lambda store, path: got.append(path) or read(store, path))

    def asked(*words):
        got.clear()
        assert cli.run(["changes", *streams, *words]) == 0
        capsys.readouterr()
        return sorted(got)

    assert cli.run(["changes", *streams, "--bookmark", "b", "--from", "1970-01-01"]) == 0
    assert cli.run(["changes", *streams, "--bookmark", "b", "--commit"]) == 0
    for words in (["--bookmark", "b", "--from", "1970-01-01"], ["--from", "2100-01-01"]):
        assert asked(*words) == asked(*words, "--json")


def test_a_version_that_is_not_sealed_is_what_the_table_is_now(streams, capsys):
    assert cli.run(["changes", *streams, "--from", "1"]) == 0
    found = capsys.readouterr()
    assert found.out == "" and found.err.startswith("nothing changed: version 1 is the newest, so it is")
    assert cli.run(["changes", *streams, "--from", "1", "--to", "1", "--json"]) == 0
    assert capsys.readouterr() == ('{"rows": [\n]}\n', "")
