"""The whole job on S3 (moto), Ray workers and Spark executors included, and the store's own promises."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from sns_topic import topic  # noqa: F401

import deltacompact
from deltacompact import Settings, compact
from deltacompact.base.errors import CredentialsError
from deltacompact.maintenance.check import check
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.storage.opening import open_object, open_store
from deltacompact.storage.s3_objects import RequestFailed

TOPIC_REGION = "us-east-1"


@pytest.fixture(params=["memory", "local", pytest.param("s3", marks=pytest.mark.processes)])
def store(request, tmp_path):
    if request.param == "memory":
        from deltacompact.storage.memory import MemoryStore

        return MemoryStore()
    if request.param == "local":
        return open_store(tmp_path)
    return open_store(request.getfixturevalue("s3_catalog_uri"))


def test_of_many_conditional_puts_one_wins_and_nothing_is_overwritten(store):
    with ThreadPoolExecutor(8) as threads:
        for place in range(5):
            won = list(threads.map(lambda n: store.put_if_absent(f"log/{place}", b"%d" % n), range(8)))  # noqa: B023
            assert won.count(True) == 1
            assert store.get(f"log/{place}") == b"%d" % won.index(True)


@pytest.mark.processes
def test_catalogs_whose_names_have_signs_of_urls_are_two(s3_catalog_uri):
    first, second = (deltacompact.open_catalog(f"{s3_catalog_uri}/a{sign}1") for sign in "#?")
    for catalog, number in ((first, 1), (second, 2)):
        catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": [number]}))
    first.table("t").drop()
    assert second.read("t").to_pylist() == [{"id": 2}]


def test_a_write_that_fails_leaves_nothing(store):
    with pytest.raises(ZeroDivisionError), store.writer("data/x") as sink:
        sink.write(b"half")
        raise ZeroDivisionError
    assert list(store.list("")) == []
    with pytest.raises(deltacompact.NotFoundError, match="data/x"):
        store.get("data/x")


def test_what_was_written_is_listed_in_byte_order_read_and_deleted(store):
    for name in ["a/10", "a/9", "a/b/c", "b/é", "b/z"]:
        with store.writer(name) as sink:
            sink.write(name.encode())
    assert [stat.path for stat in store.list("a/")] == ["a/10", "a/9", "a/b/c"]
    assert [stat.path for stat in store.list("", "a/9")] == ["a/b/c", "b/z", "b/é"]
    assert list(store.folders()) == ["a", "b"]
    assert store.stat("b/é").bytes == len("b/é".encode())
    with store.open("a/b/c") as source:
        source.seek(2)
        assert source.read(3) == b"b/c"
    store.delete(["a/9", "a/never"])
    assert [stat.path for stat in store.list("a/")] == ["a/10", "a/b/c"]


def test_an_object_that_is_named_with_a_great_s_is_that_object(s3_catalog_uri):
    """Another read of it went to the S3 of the environment, and `retract --file` did not know it."""
    table = deltacompact.open_catalog(s3_catalog_uri).create_table("t", primary_keys=["id"])
    uri = f"{s3_catalog_uri.rstrip('/')}-in/a.csv"
    store, name = open_object(open_store(s3_catalog_uri), uri)
    store.put(name, b"id,v\n1,a\n")
    table.append_files(uri.replace("s3:", "S3:"), reference=True)
    assert table.read()["v"].to_pylist() == ["a"]
    deltacompact.retract_file(table._catalog, "t", uri)
    assert table.read().num_rows == 0


def test_ranges_are_fetched_with_the_size_and_etag_of_their_object(s3_catalog_uri):
    store = open_store(s3_catalog_uri)
    store.put("x", b"0123456789")
    middle, tail, beyond = [store.fetch("x", start, length) for start, length in ((2, 3), (-4, 4), (8, 100))]
    assert [found.result().data.to_pybytes() for found in (middle, tail, beyond)] == [b"234", b"6789", b"89"]
    assert middle.result().object_bytes == 10
    etag = middle.result().etag
    assert store.fetch("x", 0, 1, etag).result().data == b"0"
    store.put("x", b"something else")
    with pytest.raises(deltacompact.InputError, match="x changed while it was read"):
        store.fetch("x", 0, 1, etag).result()
    with pytest.raises(deltacompact.NotFoundError):
        store.fetch("y", 0, 1).result()


@pytest.mark.parametrize("store", ["local", "s3"], indirect=True)  # memory stays in its process
@pytest.mark.slow
def test_a_store_travels_to_other_processes(store):
    store.put("x", b"1")
    assert pickle.loads(pickle.dumps(store)).get("x") == b"1"


def test_a_process_makes_its_clients_once_until_they_may_be_others(s3_catalog_uri, monkeypatch):
    first = open_store(s3_catalog_uri)
    assert open_store(f"{s3_catalog_uri}/elsewhere").client is first.client
    with monkeypatch.context() as patch:
        patch.setenv("AWS_CONFIG_FILE", "/another/one")
        assert open_store(s3_catalog_uri).client is not first.client
    assert open_store(s3_catalog_uri).client is first.client
    with pytest.raises(CredentialsError, match="refused access"), first.asking("x"):
        raise RequestFailed("ExpiredToken", "the token has expired", 400)
    assert open_store(s3_catalog_uri).client is not first.client


def test_secrets_are_not_shown(s3_catalog_uri):
    store = open_store(s3_catalog_uri)
    assert "testing" not in repr(store.__dict__)


def test_spark_writes_and_judges_on_s3(s3_catalog_uri, spark):
    from deltacompact.spark.validate import validate

    catalog = deltacompact.open_catalog(s3_catalog_uri)
    catalog.create_table("t", partition_keys=["day"], primary_keys=["id"], sort_keys=["at"])
    deltas = spark.createDataFrame([(n % 50, n, f"d{n % 2}") for n in range(200)], "id long, at long, day string")
    deltas.write.format("deltacompact").options(catalog=s3_catalog_uri, table="t").mode("append").save()
    catalog.append("t", pa.table({"id": [2, 4], "at": [1000, 1000]}), {"day": "d0"}, operation="delete")
    (d0, d1) = compact("t", delta_catalog_client=catalog).sessions
    assert (d0.live, d0.deleted, d1.live) == (23, 2, 25)
    assert [report.ok for report in validate(catalog, "t", spark)] == [True, True]
    read = spark.read.format("deltacompact").options(catalog=s3_catalog_uri, table="t").load()
    assert read.count() == 48


def test_ray_compacts_on_s3(s3_catalog_uri, ray_cluster):
    catalog = deltacompact.open_catalog(s3_catalog_uri)
    catalog.create_table("t", partition_keys=["day"], primary_keys=["id"], sort_keys=["at"])
    for day in range(2):
        numbers = [number for number in range(200) if number % 2 == day]
        catalog.append("t", pa.table({"id": [n % 50 for n in numbers], "at": numbers}), {"day": f"d{day}"})
    catalog.append("t", pa.table({"id": [2, 4], "at": [1000, 1000]}), {"day": "d0"}, operation="delete")
    (d0, d1) = compact("t", delta_catalog_client=catalog, settings=Settings(executor="ray")).sessions
    assert (d0.executor, d0.live, d0.deleted, d1.live) == ("ray", 23, 2, 25)
    assert [result.problems for result in check(catalog, "t")] == [(), ()]
    assert all(not result.deleted for result in vacuum(catalog, "t"))
    expected = {(n % 50): n for n in range(200) if n % 2 == 0 and n % 50 not in (2, 4)}
    rows = catalog.read("t", {"day": "d0"})
    assert dict(zip(rows["id"].to_pylist(), rows["at"].to_pylist(), strict=True)) == expected


def test_start_rounds_and_end_are_published_to_sns(topic, tmp_path):
    arn, received = topic
    catalog = deltacompact.open_catalog(tmp_path)
    catalog.create_table("t", primary_keys=["id"])
    for position in range(3):
        catalog.append("t", pa.table({"id": [position]}), stream_position=position)
    settings = Settings(executor="local", rows_per_round=1)
    compact("t", delta_catalog_client=catalog, settings=settings, sns_event_topic_arn=arn, desired_sla=60)
    messages = received()
    assert [message["event"] for message in messages] == [
        "session_started",
        *["round_completed"] * 3,
        "session_finished",
    ]
    assert messages[0]["delta_rows"] == 3 and messages[0]["desired_sla_s"] == 60
    assert messages[-1]["error"] is None and messages[-1]["live_rows"] == 3
    assert messages[-1]["files"] == [{"action": "rewrite", "reason": "small", "files": 3}]


def test_a_topic_that_fails_never_fails_a_compaction(s3_catalog_uri, tmp_path, caplog):
    catalog = deltacompact.open_catalog(tmp_path)
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1]}))
    arn = f"arn:aws:sns:{TOPIC_REGION}:123456789012:no-such-topic"
    (session,) = compact("t", delta_catalog_client=catalog, sns_event_topic_arn=arn).sessions
    assert session.live == 1
    assert "an event sink failed" in caplog.text
