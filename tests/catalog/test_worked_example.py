"""The paper's worked example: AMZN.CUSTOMER_ORDER_STATUS.V1, 16 rows in 8 files, two partitions, four hash buckets."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import problems

import deltacompact
from deltacompact import CompactionResult, ContentType, DeltaStreamCatalog, Settings
from deltacompact.base.model import Partition
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.storage.memory import MemoryStore

SOURCE = "AMZN.CUSTOMER_ORDER_STATUS.V1"
DESTINATION = "AMZN.CUSTOMER_ORDER_STATUS_COMPACTED.V1"
PACIFIC = timezone(timedelta(hours=-7))

Row = tuple[int, str, datetime]


def row(order_id: int, status: str, month_day: str, time: str) -> Row:
    month, day = map(int, month_day.split("/"))
    clock = datetime.strptime(time, "%H:%M:%S.%f")
    return order_id, status, clock.replace(1995, month, day, tzinfo=PACIFIC)


# By partition: stream position -> files. The second file of position 1512203109932 says 06:14:36.335 for 78010912's
# PACKED where the paper's first table says 08:33:36.335; neither is the row that lives.
DELTAS = {
    "1995-04-03": {
        1512203522392: [
            [row(12390127, "SUBMITTED", "4/3", "13:16:32.982"), row(83475997, "SUBMITTED", "4/3", "14:34:21.743")],
            [row(62865095, "SUBMITTED", "4/3", "09:54:42.281"), row(83475997, "PACKED", "4/4", "07:39:11.782")],
        ],
        1512203633403: [
            [row(12390127, "PACKED", "4/4", "07:39:12.451"), row(83475997, "SHIPPED", "4/5", "06:17:55.102")],
            [row(29683967, "SUBMITTED", "4/3", "08:21:40.752"), row(95283672, "SUBMITTED", "4/3", "20:19:03.818")],
        ],
    },
    "1995-04-04": {
        1512203109932: [
            [row(58392460, "SUBMITTED", "4/4", "23:42:11.623"), row(78010912, "SUBMITTED", "4/4", "11:51:59.018")],
            [row(38925648, "SUBMITTED", "4/4", "07:24:52.216"), row(78010912, "PACKED", "4/5", "06:14:36.335")],
        ],
        1512204210043: [
            [row(38925648, "CANCELLED", "4/4", "23:31:06.705"), row(78010912, "SHIPPED", "4/5", "06:17:55.102")],
            [row(58392460, "PACKED", "4/5", "12:09:56.600"), row(78010912, "DELIVERED", "4/6", "15:07:36.914")],
        ],
    },
}

LIVE = {
    "1995-04-03": {
        row(62865095, "SUBMITTED", "4/3", "09:54:42.281"),
        row(12390127, "PACKED", "4/4", "07:39:12.451"),
        row(83475997, "SHIPPED", "4/5", "06:17:55.102"),
        row(29683967, "SUBMITTED", "4/3", "08:21:40.752"),
        row(95283672, "SUBMITTED", "4/3", "20:19:03.818"),
    },
    "1995-04-04": {
        row(38925648, "CANCELLED", "4/4", "23:31:06.705"),
        row(58392460, "PACKED", "4/5", "12:09:56.600"),
        row(78010912, "DELIVERED", "4/6", "15:07:36.914"),
    },
}


@pytest.fixture
def catalog() -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table(SOURCE, partition_keys=["Order Day"])
    for day, deltas in DELTAS.items():
        for position, files in deltas.items():
            tables = [as_table(day, rows) for rows in files]
            catalog.append(SOURCE, tables, {"Order Day": day}, stream_position=position)
    return catalog


def as_table(day: str, rows: list[Row]) -> pa.Table:
    ids, statuses, updated = zip(*rows, strict=True)
    return pa.table(
        {
            "Order ID": pa.array(ids, pa.int64()),
            "Order Day": pa.array([day] * len(rows)).cast(pa.date32()),
            "Order Status": pa.array(statuses),
            "Last Updated": pa.array(updated, pa.timestamp("ms", "America/Los_Angeles")),
        }
    )


def compact_as_the_paper_does(catalog: DeltaStreamCatalog) -> CompactionResult:
    return deltacompact.compact(
        source_table_id=SOURCE,
        primary_keys={"Order ID"},
        sort_keys=[("Last Updated", "ascending")],
        desired_sla=None,
        delta_catalog_client=catalog,
        destination_compacted_table_id=DESTINATION,
        rows_per_primary_key_index_file=2,
        rows_per_compacted_file=2,
        hash_bucket_count=4,
        sns_event_topic_arn=None,
        compacted_file_content_type=ContentType.PARQUET,
        settings=Settings(executor="local", rows_per_round=4),
    )


def live_rows(catalog: DeltaStreamCatalog, table_id: str, day: str) -> list[Row]:
    rows = catalog.read(table_id, {"Order Day": day}).to_pylist()
    assert {str(each["Order Day"]) for each in rows} == {day}
    return [(each["Order ID"], each["Order Status"], each["Last Updated"]) for each in rows]


@pytest.mark.parametrize("day", LIVE)
def test_each_partition_of_the_destination_holds_the_latest_status_of_each_order(
    catalog: DeltaStreamCatalog, day: str
) -> None:
    compact_as_the_paper_does(catalog)
    rows = live_rows(catalog, DESTINATION, day)
    assert set(rows) == LIVE[day]
    assert len(rows) == len(LIVE[day])


def test_every_row_is_counted_once(catalog: DeltaStreamCatalog) -> None:
    sessions = {each.partition["Order Day"]: each for each in compact_as_the_paper_does(catalog).sessions}
    first, second = sessions["1995-04-03"], sessions["1995-04-04"]
    assert (first.rows_in, first.live, first.superseded, first.deleted) == (8, 5, 3, 0)
    assert (second.rows_in, second.live, second.superseded, second.deleted) == (8, 3, 5, 0)
    assert (first.rounds, second.rounds) == (2, 2)
    assert (first.files_new, second.files_new) == (3, 2)


@pytest.mark.parametrize("day", LIVE)
def test_files_and_index_are_cut_as_the_paper_asks(catalog: DeltaStreamCatalog, day: str) -> None:
    compact_as_the_paper_does(catalog)
    state = catalog.state(DESTINATION, Partition.of(["Order Day"], {"Order Day": day}))
    assert state.compacted is not None and state.index is not None
    assert state.compacted.watermark == max(DELTAS[day])
    for file in state.compacted.files:
        assert file.rows == pq.read_metadata(catalog.store.open(file.path)).num_rows <= 2
    manifest = read_manifest(catalog.store, state.index)
    assert manifest.hash_bucket_count == 4
    assert manifest.rows == len(LIVE[day])
    assert all(file.rows <= 2 for file in manifest.files)
    assert problems(catalog, DESTINATION) == []


def test_the_source_stays_as_it_was_and_reads_the_same_once_its_keys_are_known(catalog: DeltaStreamCatalog) -> None:
    before = [catalog.state(SOURCE, each).tail for each in catalog.partitions(SOURCE)]
    compact_as_the_paper_does(catalog)
    assert [catalog.state(SOURCE, each).tail for each in catalog.partitions(SOURCE)] == before
    for day, live in LIVE.items():
        assert set(live_rows(catalog, SOURCE, day)) == live


def test_the_destination_never_refers_to_files_of_the_source(catalog: DeltaStreamCatalog) -> None:
    compact_as_the_paper_does(catalog)
    root = TablePaths.of(DESTINATION).root + "/"
    for partition in catalog.partitions(DESTINATION):
        compacted = catalog.state(DESTINATION, partition).compacted
        assert compacted is not None
        assert all(file.path.startswith(root) for file in compacted.files)


def test_a_second_compaction_has_nothing_to_do(catalog: DeltaStreamCatalog) -> None:
    compact_as_the_paper_does(catalog)
    assert all(session.nothing_to_do for session in compact_as_the_paper_does(catalog).sessions)
