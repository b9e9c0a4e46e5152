"""A REST catalog, served by Iceberg's Java: the server checks our requirements and writes the metadata.

Answers are lost on the way, come twice, or never; the table tells what happened.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pyarrow as pa
import pytest
from iceberg_lake import SETTINGS
from publications import Publications
from rest_server import Answer, RestServer
from table_t import ids

import deltacompact
from deltacompact.base.errors import ConflictError, CredentialsError, InputError, NotFoundError, StoreError
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable, rest_sessions
from deltacompact.iceberg.table.pyiceberg_door import table as door_table
from deltacompact.iceberg_modes.maintain.maintain import Maintain
from deltacompact.iceberg_modes.maintain.options import DAY_MS

pytestmark = pytest.mark.processes

T = "ns.t"
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
QUICK = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "5"}


@pytest.fixture
def server(spark, lake):
    if "iceberg-spark-runtime" not in spark.sparkContext._jsc.sc().listJars().mkString(" "):
        pytest.skip("Spark started without the Iceberg runtime: no Maven repository was reachable")
    server = RestServer(spark, lake)
    lake.catalog = server.catalog()
    yield server
    server.close()


def rows(*numbers, name="x"):
    return [{"id": number, "name": name} for number in numbers]


def table_of(lake, version, *appends):
    lake.catalog.create_table(T, COLUMNS, properties=QUICK | {"format-version": str(version)})
    for numbers in appends:
        lake.append(T, rows(*numbers))


def compact(lake, mode="rewrite", branch="main", **options):
    catalog = deltacompact.open_catalog(lake.catalog)
    options = {name.replace("_", "-"): value for name, value in options.items()}
    return deltacompact.compact(
        T, delta_catalog_client=catalog, mode=mode, branch=branch, options=options, settings=SETTINGS
    )


def rewrite_all(lake, branch="main"):
    return compact(lake, branch=branch, rewrite_all=True)


def outputs(lake):
    return {path.name for path in Path(lake.folder, "warehouse").rglob("*-deltacompact.parquet")}


def live_outputs(lake):
    found = {entry.file.path.rpartition("/")[2] for entry in lake.state(T).data}
    return {name for name in found if name.endswith("-deltacompact.parquet")}


@pytest.mark.parametrize("version", [2, 3])
def test_all_modes_on_main_and_on_a_branch_then_maintained(server, lake, version):
    table_of(lake, version, range(5), range(5, 8))
    lake.delete_by_key(T, {"id": [2, 6]})
    lake.catalog.load_table(T).manage_snapshots().create_branch(lake.state(T).snapshot_id, "audit").commit()
    assert compact(lake, "convert").rows_marked == 2
    assert ids(lake) == [0, 1, 3, 4, 5, 7]
    lake.append(T, rows(3, 9, name="y"))
    assert compact(lake, "upsert", key_columns="id").rows_superseded == 1
    assert rewrite_all(lake).rows_out == 7
    assert {row["id"]: row["name"] for row in lake.rows(T)} == {0: "x", 1: "x", 3: "y", 4: "x", 5: "x", 7: "x", 9: "y"}
    assert rewrite_all(lake, "audit").rows_out == 6
    assert ids(lake, "audit") == [0, 1, 3, 4, 5, 7]
    assert lake.catalog.load_table(T).format_version == version
    lake.append(T, rows(10))
    later = lake.catalog.load_table(T).metadata.last_updated_ms + 10 * DAY_MS
    options = {"commit.manifest.target-size-bytes": 8 << 20}
    maintained = Maintain(IcebergTable.load(lake.catalog, T), chosen=options, now_ms=later)
    result = maintained.run(expire_snapshots=True, rewrite_manifests=True, remove_orphans=True)
    assert len(result.expire_snapshots.snapshots) >= 5
    assert result.rewrite_manifests.created == 1
    assert (ids(lake), ids(lake, "audit")) == ([0, 1, 3, 4, 5, 7, 9, 10], [0, 1, 3, 4, 5, 7])
    lost = Path(lake.state(T).metadata.location.removeprefix("file://"), "data/lost.parquet")
    lost.write_bytes(b"orphan")
    neighbour = lake.catalog.create_table("ns.u", COLUMNS, properties={"write.data.path": str(lost.parent)})
    later += 10 * DAY_MS
    with pytest.raises(InputError, match=r"files of table ns\.u"):
        Maintain(IcebergTable.load(lake.catalog, T), now_ms=later).run(remove_orphans=True)
    lake.catalog.drop_table(neighbour.name())
    assert Maintain(IcebergTable.load(lake.catalog, T), now_ms=later).run(remove_orphans=True).remove_orphans.files
    assert not lost.exists()


@pytest.mark.parametrize(("version", "branch"), [(2, "main"), (2, "audit"), (3, "audit")])
def test_a_writer_who_comes_first_costs_one_attempt(server, lake, version, branch):
    """Onto another branch too: there the head is as it was, but our sequence number and row ids are taken."""
    table_of(lake, version, [1, 2], [3])
    lake.catalog.load_table(T).manage_snapshots().create_branch(lake.state(T).snapshot_id, "audit").commit()
    server.before_commit = lambda: lake.append(T, rows(4), branch=branch)
    asked = server.commits_asked
    result = rewrite_all(lake)
    assert (len(result.snapshots), result.redone, server.commits_asked - asked) == (1, 0, 3)
    assert ids(lake) == ([1, 2, 3, 4] if branch == "main" else [1, 2, 3])
    assert outputs(lake) == live_outputs(lake)


ANSWERS = [
    Answer(500, carried_out=True),
    Answer(502, carried_out=True, body="<html>Bad Gateway</html>"),
    Answer(503, carried_out=False),
    Answer(504, carried_out=True),
    Answer(0, carried_out=True),
    Answer(0, carried_out=False),
    Answer(200, carried_out=True, body="<html>Sign in</html>"),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=[f"{answer.status}-{answer.carried_out}" for answer in ANSWERS])
def test_rule_20_a_lost_answer_is_found_in_the_table(server, lake, answer):
    table_of(lake, 2, [1, 2], [3])
    asked = server.commits_asked
    server.answers(answer)
    result = rewrite_all(lake)
    state = lake.state(T)
    assert result.snapshots == [state.snapshot_id]
    assert (server.commits_asked - asked, len(state.data), ids(lake)) == (1 if answer.carried_out else 2, 1, [1, 2, 3])
    assert outputs(lake) == live_outputs(lake)


def test_rule_20_a_commit_that_a_proxy_sends_twice_is_not_taken_for_a_conflict(server, lake):
    """The first one landed. The client hears of the second: 409, or 400 from servers that say so."""
    for status in (409, 400):
        table_of(lake, 2, [1, 2], [3])
        server.answers(Answer(status, carried_out=True))
        result = rewrite_all(lake)
        assert result.snapshots == [lake.state(T).snapshot_id]
        assert (ids(lake), outputs(lake)) == ([1, 2, 3], live_outputs(lake))
        lake.catalog.drop_table(T)
        for path in Path(lake.folder, "warehouse").rglob("*.parquet"):
            path.unlink()


def test_a_server_that_restarts_during_a_commit_is_asked_again(server, lake, monkeypatch):
    monkeypatch.setattr(door_table, "SILENT_S", 30.0)
    table_of(lake, 2, [1, 2], [3])
    catalog = deltacompact.open_catalog(lake.catalog)
    asked = server.commits_asked
    server.answers(Answer(502, carried_out=True))

    def restart():
        server.loads(Answer(503), Answer(0), Answer(502))

    server.before_commit = restart
    result = deltacompact.compact(T, delta_catalog_client=catalog, options={"rewrite-all": "true"}, settings=SETTINGS)
    assert (len(result.snapshots), server.commits_asked - asked, ids(lake)) == (1, 1, [1, 2, 3])


def test_a_busy_server_and_an_expired_token_are_tried_again(server, lake):
    table_of(lake, 2, [1, 2], [3])
    asked = server.commits_asked
    server.answers(Answer(429), Answer(429), Answer(419))
    assert len(rewrite_all(lake).snapshots) == 1
    assert (server.commits_asked - asked, ids(lake)) == (4, [1, 2, 3])
    assert outputs(lake) == live_outputs(lake)


@pytest.mark.parametrize("status", [403, 422])
def test_a_server_that_refuses_us_is_told_in_one_line_and_nothing_is_left(server, lake, status):
    table_of(lake, 2, [1, 2], [3])
    before = {path for path in Path(lake.folder, "warehouse").rglob("*") if path.is_file()}
    server.answers(*[Answer(status)] * 2)
    with pytest.raises(InputError, match=r"^ns\.t: the catalog refuses the commit: ") as caught:
        rewrite_all(lake)
    assert "\n" not in str(caught.value)
    assert {path for path in Path(lake.folder, "warehouse").rglob("*") if path.is_file()} == before


def test_what_was_written_waits_for_a_new_token(server, lake):
    table_of(lake, 2, [1, 2], [3])
    server.answers(*[Answer(401)] * 2)
    with pytest.raises(CredentialsError, match=r"^ns\.t: the catalog refuses the commit: "):
        rewrite_all(lake)
    before = outputs(lake)
    assert (compact(lake).resumed, ids(lake)) == (1, [1, 2, 3])
    assert outputs(lake) == live_outputs(lake) == before


def test_a_table_that_is_dropped_or_made_anew_before_our_commit(server, lake):
    table_of(lake, 2, [1, 2], [3])
    server.before_commit = lambda: lake.catalog.drop_table(T)
    with pytest.raises(NotFoundError, match=r"has no table 'ns\.t'"):
        rewrite_all(lake)

    def anew():
        lake.catalog.drop_table(T)
        table_of(lake, 2, [7])

    table_of(lake, 2, [1, 2], [3])
    server.before_commit = anew
    with pytest.raises(ConflictError, match="dropped and created again"):
        rewrite_all(lake)
    assert ids(lake) == [7]


def test_a_branch_that_the_server_removes_with_its_snapshot_is_noticed(server, lake):
    """A REST catalog cannot be asked whether there is a new ref: it removes one of a removed snapshot."""
    table_of(lake, 2, [1], [2], [3])
    first = lake.catalog.load_table(T).snapshots()[0].snapshot_id
    later = lake.catalog.load_table(T).metadata.last_updated_ms + 10 * DAY_MS
    files = {path for path in Path(lake.folder, "warehouse").rglob("*.avro")}
    other = server.catalog()
    server.before_commit = lambda: other.load_table(T).manage_snapshots().create_branch(first, "late").commit()
    with pytest.raises(ConflictError, match=r"'late' of snapshot \d+ was made while the snapshot expired"):
        Maintain(IcebergTable.load(lake.catalog, T), now_ms=later).run(expire_snapshots=True)
    assert files <= set(Path(lake.folder, "warehouse").rglob("*.avro"))


def test_vended_credentials_reach_the_store(server, lake, s3_bucket, s3_endpoint, monkeypatch):
    """By the table's config, and by storage credentials, which come before it."""
    location = f"s3://{s3_bucket}/t"
    kept = {"write.metadata.path": f"{lake.warehouse}/metadata"}  # the server has no client of S3
    server.config = {"s3.endpoint": s3_endpoint, "s3.region": "us-east-1", "s3.access-key-id": "config"}
    server.config["s3.secret-access-key"] = "secret"
    lake.catalog.create_table(T, COLUMNS, location=location, properties=QUICK | kept)
    lake.append(T, rows(1, 2))
    lake.append(T, rows(3))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert IcebergTable.load(lake.catalog, T).store.settings.access_key == "config"
    vended = {"s3.access-key-id": "vended", "s3.secret-access-key": "secret", "s3.session-token": "token"}
    server.credentials = [{"prefix": "file:", "config": vended}]
    settings = IcebergTable.load(lake.catalog, T).store.settings
    assert (settings.access_key, settings.session_token) == ("vended", "token")
    result = rewrite_all(lake)
    assert (result.files_in, result.files_out, ids(lake)) == (2, 1, [1, 2, 3])
    assert all(entry.file.path.startswith(location) for entry in lake.state(T).data)


def test_a_delta_stream_is_published_by_a_configured_name(server, lake, tmp_path, monkeypatch):
    """Created and given a column by the server; deletes come as deletion by position; one answer is lost."""
    monkeypatch.setenv(f"PYICEBERG_CATALOG__{lake.name.upper()}__URI", server.uri)
    orders = Publications(lake, tmp_path / "delta")
    orders.append([{"id": number, "name": "x"} for number in range(50)])
    orders.compact()
    assert orders.publish().files_added == 1
    assert orders.shown() == orders.compacted()
    orders.append([{"id": 60, "name": "y", "city": "Riga"}])
    orders.append([{"id": 3}], "delete")
    server.answers(None, Answer(504, carried_out=True))  # the column, then the snapshot
    result = orders.compact()
    assert result.publication.error is None
    assert orders.shown() == orders.compacted()
    assert len(orders.shown()) == 50


def test_a_server_that_never_answers(server, lake, monkeypatch):
    table_of(lake, 2, [1, 2], [3])
    monkeypatch.setattr(rest_sessions, "ANSWER_S", 0.5)
    server.answers(Answer(silent_s=2.0, carried_out=True))
    assert len(rewrite_all(lake).snapshots) == 1
    assert ids(lake) == [1, 2, 3]
    server.loads(Answer(silent_s=2.0))
    with pytest.raises(
        StoreError, match=rf"^Iceberg catalog '{lake.name}' does not answer: .*Read timed out"
    ) as caught:
        rewrite_all(lake)
    assert "\n" not in str(caught.value)


def test_a_catalog_that_shows_some_snapshots_only_is_refused(server, lake):
    table_of(lake, 2, [1])
    lake.catalog = server.catalog(**{"snapshot-loading-mode": "refs"})
    with pytest.raises(InputError, match="snapshot-loading-mode=refs: deltacompact must see all snapshots"):
        rewrite_all(lake)


@pytest.fixture
def black_hole():
    """Accepts connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(5)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_catalog_that_is_not_there_is_told_in_one_line(monkeypatch, black_hole):
    monkeypatch.setattr(rest_sessions, "ANSWER_S", 0.2)
    for uri in ("http://127.0.0.1:1", "http://nobody.invalid", black_hole):
        monkeypatch.setenv("PYICEBERG_CATALOG__AWAY__URI", uri)
        with pytest.raises(StoreError, match=r"^Iceberg catalog 'away' does not answer: ") as caught:
            deltacompact.open_catalog("iceberg://away")
        assert "\n" not in str(caught.value)
