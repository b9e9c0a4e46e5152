"""What is printed of many partitions: a screen, whatever their names are, with as many requests as their logs take."""

from __future__ import annotations

import io
import re

import pyarrow as pa
import pytest
from counting_store import CountingStore

import deltacompact
from deltacompact import DeltaStreamCatalog, Settings, cli, compact
from deltacompact.base.printable import named
from deltacompact.cli import console, result_report
from deltacompact.delta_streams.sizes import StreamSizes
from deltacompact.job import Request
from deltacompact.reports import catalog_report, history, plan_report, table_report, version_report
from deltacompact.reports.scale import WORST, Detail
from deltacompact.reports.sizes import added, sizes_document, waiting_words
from deltacompact.reports.words import Report, clipped, in_columns, position_text
from deltacompact.storage.memory import MemoryStore

PARTITIONS = 40
HOSTILE = ["\x1b[2J\x1b[Hgone", "two\nlines", "\u202egnp.exe", "שלום עולם", "x" * 300, "日本語", "\x9b31m", "[red]"]
SCREEN = 24


def lake(store: CountingStore) -> DeltaStreamCatalog:
    """Table t: many partitions of one delta, and one of three that readers fold most rows of."""
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", ["p"], ["id"])
    for number in range(PARTITIONS - len(HOSTILE)):
        catalog.append("t", pa.table({"id": [1, 2]}), {"p": f"{number:02}"})
    for value in HOSTILE:
        catalog.append("t", pa.table({"id": [1]}), {"p": value})
    for _ in range(2):
        catalog.append("t", pa.table({"id": range(500)}), {"p": "07"})
    return DeltaStreamCatalog(store)


@pytest.fixture(scope="module")
def stored() -> CountingStore:
    store = CountingStore(MemoryStore())
    lake(store)
    store.reset()
    return store


def printed(print_, *shown, width: int = 80) -> list[str]:
    out = console._console(stderr=False)
    out.file, out.width = io.StringIO(), width
    print_(out, *shown)
    return out.file.getvalue().splitlines()


def planned(catalog: DeltaStreamCatalog) -> Report:
    return plan_report.plan_report(catalog, Request("t"), usd_per_core_hour=36)


@pytest.mark.parametrize("width", [80, 200])
def test_a_plan_of_many_partitions_is_a_screen(stored, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed(plan_report.print_plans, planned(DeltaStreamCatalog(stored)), Detail(), width=width)
    assert lines[0] == "t: 40 partitions: 40 to compact"
    assert re.match("  waiting: 42 deltas, 1,072 rows, .*; 42 for less than an hour, since 2", lines[2])
    assert re.match(r"  expected: [\d.]+ s with start-up on \d+ slots?, [\d.]+ core-seconds, [\d.]+ USD", lines[4])
    assert lines[3] == "  files: 42 -> about 40"
    assert lines[-1] == "and 30 more partitions: --verbose prints all"
    table = lines[lines.index(next(line for line in lines if line.endswith("partition"))) :]
    assert table[1].split()[1:3] == ["3", "1,002"] and table[1].endswith("p=07")
    assert len(lines) <= SCREEN and all(len(line) <= width for line in table)


def test_everything_is_printed_where_it_is_asked_for(stored):
    shown = planned(DeltaStreamCatalog(stored))
    everything = printed(plan_report.print_plans, shown, Detail(verbose=True))
    assert sum(line.startswith("p=") for line in everything) == PARTITIONS
    assert sum("upsert at " in line for line in everything) == 0
    assert "  3 upsert files, 1,002 rows: rewrite (small, merged)" in everything
    files = printed(plan_report.print_plans, shown, Detail(verbose=True, files=True))
    assert sum("upsert at " in line for line in files) == PARTITIONS + 2
    worst = printed(plan_report.print_plans, shown, Detail(files=True))
    assert sum("upsert at " in line for line in worst) == WORST + 2


def test_a_table_of_many_partitions_is_a_screen_and_its_partitions_are_there(stored):
    shown = table_report.table_document(DeltaStreamCatalog(stored), "t")
    lines = printed(table_report.print_table, shown, Detail())
    assert lines[1] == "40 partitions" and lines[2] == "  compacted: nothing" and len(lines) <= SCREEN
    plan = planned(DeltaStreamCatalog(stored))
    assert lines[4] == f"  a compaction would take {plan.total.expected.words()}"
    assert shown.document["expected"]["core_seconds"] == plan.total.expected.core_seconds
    assert len(shown.document["streams"]) == PARTITIONS
    everything = printed(table_report.print_table, shown, Detail(verbose=True))
    assert sum(line.startswith("p=") for line in everything) == PARTITIONS
    assert (
        sum(re.match(r"  delta \d{13} \(20..-..-.. ..:.. UTC\): upsert of ", line) is not None for line in everything)
        == 42
    )


@pytest.mark.parametrize("detail", [Detail(), Detail(verbose=True), Detail(verbose=True, files=True)])
def test_a_name_moves_no_cursor_and_breaks_no_line(stored, detail):
    catalog = DeltaStreamCatalog(stored)
    everything = [
        *printed(plan_report.print_plans, planned(catalog), detail),
        *printed(table_report.print_table, table_report.table_document(catalog, "t"), detail),
        *printed(version_report.print_versions, version_report.versions_document(catalog, "t"), detail),
    ]
    text = "\n".join(everything)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    if detail.verbose:
        assert r"p=\x1b[2J\x1b[Hgone: " in text and r"p=two\nlines: " in text and r"p=\u202egnp.exe: " in text
        assert "p=[red]: " in text and f"p={'x' * 300}: " in text


def test_an_error_is_told_without_control_characters(tmp_path, capfd):
    deltacompact.open_catalog(tmp_path).create_table("t", primary_keys=["id"])
    assert deltacompact.cli.run(["show", str(tmp_path), "\x1b[2J\u202e"]) == 2
    assert "\x1b[2J" not in capfd.readouterr().err


def test_a_plan_costs_no_request_more_than_its_job(stored):
    from deltacompact.job import prepare

    stored.reset()
    prepare(DeltaStreamCatalog(stored), Request("t"))
    of_job = stored.by_path()
    stored.reset()
    planned(DeltaStreamCatalog(stored))
    assert stored.by_path() == of_job
    stored.reset()


def test_show_reads_each_log_once_with_its_forecast(stored):
    """For what it expects, each of 3,000 partitions was looked for again, and its log was read again."""
    catalog = DeltaStreamCatalog(stored)
    stored.reset()
    for partition in catalog.partitions("t"):
        list(catalog.log("t", partition).chain())
    once = stored.by_path()
    stored.reset()
    assert table_report.table_document(DeltaStreamCatalog(stored), "t").total is not None
    documents = {("get", "t/source.json"), ("get", "t/table.json")}
    assert {request: count for request, count in (stored.by_path() - once).items() if request not in documents} == {}
    stored.reset()


def test_a_catalog_reads_each_log_once_and_all_at_a_time(stored):
    catalog = DeltaStreamCatalog(stored)
    stored.reset()
    for partition in catalog.partitions("t"):
        catalog.state("t", partition)
    one_by_one = stored.by_path()
    stored.reset()
    stored.latency_s, stored.at_once_max = 0.02, 0
    (table,) = catalog_report.catalog_document(DeltaStreamCatalog(stored)).document
    requests = stored.by_path()
    stored.latency_s = 0.0
    stored.reset()
    assert (table["partitions"], table["sizes"]["deltas"], table["sizes"]["delta_rows"]) == (40, 42, 1072)
    assert sum(requests.values()) <= sum(one_by_one.values()) + 4  # which tables there are, and the documents of one
    assert stored.at_once_max >= 16
    assert "sizes" not in catalog_report.catalog_document(DeltaStreamCatalog(stored), quick=True).document[0]


def test_show_says_of_a_catalog_what_is_compacted_and_what_waits():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("some", (), ["id"])
    catalog.append("some", pa.table({"id": [1, 2, 3]}))
    compact("some", delta_catalog_client=catalog, settings=Settings(executor="local"))
    catalog.append("some", pa.table({"id": [4]}))
    catalog.create_table("none", (), ["id"])
    shown = catalog_report.catalog_document(catalog)
    none, some = shown.document
    assert (some["sizes"]["rows"], some["sizes"]["deltas"], none["sizes"]["files"]) == (3, 1, 0)
    assert abs(some["sizes"]["compacted_s"] - catalog.clock()) < 60
    head, first, second = printed(catalog_report.print_catalog, catalog.where, shown.document, width=200)
    assert head.split("  ")[0] == "partitions" and "dead rows" not in head and "destination" not in head
    assert first.split()[:2] == ["0", "0"] and second.split()[:2] == ["1", "3"]


def test_what_a_compaction_takes_is_told_of_one_partition_too():
    catalog = DeltaStreamCatalog(MemoryStore())
    orders = catalog.create_table("t")
    assert table_report.table_document(catalog, "t").total is None, "nothing waits"
    orders.append(pa.table({"id": [1]}))
    refused = table_report.table_document(catalog, "t", usd_per_core_hour=1)
    assert refused.total == "a compaction cannot be planned: " + refused.document["expected"]["error"]["message"]
    assert "has no primary keys yet: name them" in refused.total
    orders.compact(primary_keys=["id"], settings=Settings(executor="local"))
    orders.append(pa.table({"id": [1]}))
    shown = table_report.table_document(catalog, "t", usd_per_core_hour=36_000)
    line = printed(table_report.print_table, shown, Detail())[1]
    assert re.fullmatch(r"a compaction would take .* core-seconds, \d\.\d{4} USD", line)
    assert shown.document["expected"]["usd"] == pytest.approx(shown.document["expected"]["core_seconds"] * 10)
    said = line.removeprefix("a compaction would take ")
    without_price = said.rpartition(",")[0]
    assert table_report.table_document(catalog, "t").total == f"a compaction would take {without_price}"
    for price, words in ((36_000, said), (None, without_price)):
        plan = printed(plan_report.print_plans, plan_report.plan_report(catalog, Request("t"), price), Detail())
        assert [text for text in plan if "expected: " in text] == [f"  expected: {words}"], "with start-up"


def test_a_stream_that_cannot_be_read_is_named_beside_its_table():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["p"], ["id"])
    for value in ("good", "bad"):
        catalog.append("t", pa.table({"id": [1]}), {"p": value})
    for stat in list(catalog.store.list("t/")):
        if "p=bad/" in stat.path and stat.path.endswith("0.json"):
            catalog.store.put(stat.path, b"{")
    catalog = DeltaStreamCatalog(catalog.store)
    shown = catalog_report.catalog_document(catalog)
    assert shown.document[0]["failed_partitions"] == 1 and len(shown.errors) == 1
    assert "t: 1 partition failed: " in printed(catalog_report.print_catalog, catalog.where, shown.document)[-1]


def test_a_compaction_ends_with_one_line(capfd):
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["p"], ["id"])
    for number in range(WORST + 2):
        catalog.append("t", pa.table({"id": [1, 1, 2]}), {"p": str(number)})
    result = compact("t", delta_catalog_client=catalog, settings=Settings(executor="local"))
    lines = printed(result_report.print_result, result, 1.25, Detail())
    assert lines[-1] == "Done: 12 partitions compacted; 36 rows in, 24 live, 12 dead; files 12 -> 12; 1.2 s"
    assert lines[0] == "t: 12 partitions, 36 rows in, 24 live, 12 dead"
    assert "and 2 more partitions: --verbose prints all" in lines
    catalog.append("t", pa.table({"id": [1]}), {"p": "3"})
    catalog.append("t", pa.table({"id": [1]}), {"p": "4"})
    result = compact("t", partitions=[{"p": "4"}, {"p": "5"}], delta_catalog_client=catalog)
    assert printed(result_report.print_result, result, 1.25, Detail())[:-1] == str(result).splitlines()
    result = compact("t", delta_catalog_client=catalog, settings=Settings(executor="local"))
    done = printed(result_report.print_result, result, 0.0, Detail())[-1]
    assert done.startswith("Done: 1 partition of 12 compacted, 11 with nothing to do; 3 rows in, 2 live, 1 dead; ")
    result = compact("t", delta_catalog_client=catalog, settings=Settings(executor="local"))
    assert printed(result_report.print_result, result, 0.0, Detail(verbose=True))[-1].startswith("p=9: nothing to do")


@pytest.mark.parametrize(
    ("words", "totals"),
    [
        (["check", "--quick"], "12 partitions: 11 sound, 1 not sound; 11 files, 0 compacted rows"),
        (["vacuum", "--dry-run"], "12 partitions, 1 failed: would delete 0 objects (0 B), kept 11"),
        (["rehash", "--hash-buckets", "2"], "12 partitions, 1 failed: 0 rehashed"),
    ],
)
def test_upkeep_of_many_partitions_is_a_screen_too(tmp_path, capfd, words, totals):
    """It was a line for each of them."""
    catalog = deltacompact.open_catalog(tmp_path)
    orders = catalog.create_table("t", ["p"], ["id"])
    orders.append(pa.table({"id": range(WORST + 2), "p": [str(number) for number in range(WORST + 2)]}))
    for stat in list(catalog.store.list("t/")):
        if "p=5/" in stat.path and stat.path.endswith(".json"):
            catalog.store.put(stat.path, b"{")
    name, *options = words
    for more, most in ([], WORST + 1), (["--verbose"], WORST + 2):
        assert cli.run([name, str(tmp_path), "t", *options, *more]) == 1
        said = capfd.readouterr().out.splitlines()
        named_ones = [line.partition(":")[0] for line in said if line.startswith("p=")]
        assert said[0] == totals and "p=5" in named_ones and WORST <= len(named_ones) <= most
        assert any(line.endswith("--verbose prints all") for line in said) is (not more)
        assert not more or len(named_ones) == WORST + 2


def test_a_history_of_many_partitions_has_ten_and_looks_at_each_once(stored, monkeypatch):
    """It looked through all versions for each partition: ten seconds for 3,000 of them."""
    made = [history.version_document(version) for version in DeltaStreamCatalog(stored).table("t").history()]
    assert len(made) == PARTITIONS
    lines = history.version_lines(made, Detail())
    assert len(lines) == 3 * WORST + 1 and lines[-1] == "and 30 more partitions: --verbose prints all"
    names = []
    monkeypatch.setattr(history, "named", lambda partition: names.append(partition) or "a name")
    assert len(history.version_lines(made, Detail(verbose=True))) == 3 * PARTITIONS and len(names) == PARTITIONS


def test_words():
    assert named({"a": None, "b": "1\t2"}) == r"a=null/b=1\t2"
    assert (position_text(7), position_text(1795308996186)) == ("7", "1795308996186 (2026-11-22 00:56 UTC)")
    assert position_text(2**62) == str(2**62) and position_text(-5) == "-5"
    assert clipped("abcdefghij", 7) == "abc…hij" and clipped("abc", 3) == "abc"
    assert in_columns([("1", "a"), ("10", "b")], right=1) == [" 1  a", "10  b"]


def test_ages_are_added_up():
    now_s = 10_000_000.0
    sizes = StreamSizes(deltas=3, delta_rows=3, delta_times_s=(now_s + 9, now_s - 4000, now_s - 9e6))
    both = added([sizes_document(sizes, now_s)] * 2)
    assert both["waiting_by_age"] == {"hour": 2, "day": 2, "week": 0, "longer": 2}
    assert waiting_words(both).endswith(
        "; 2 for less than an hour, 2 for less than a day, 2 for longer than a week, since 1970-01-12 13:46 UTC"
    )
