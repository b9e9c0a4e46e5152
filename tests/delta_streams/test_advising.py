"""Advice about clustering delta streams: depth by footers, what a tree would make of rows, and what it costs."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltacompact
from deltacompact import DeltaStreamCatalog, Settings
from deltacompact.base.errors import InputError
from deltacompact.base.settings import Options
from deltacompact.cli import run
from deltacompact.delta_streams.advising import costs
from deltacompact.layout import value_ranges
from deltacompact.reports.advice import advice_lines
from deltacompact.storage.memory import MemoryStore


@pytest.fixture
def orders(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("orders", primary_keys=["id"])
    return catalog.table("orders")


def rows(first, last, **others):
    ids = list(range(first, last))
    return pa.table({"id": ids, "name": [f"n{number:03}" for number in ids], "tags": [[1]] * len(ids), **others})


def test_compacted_files_and_deltas_are_told_by_their_footers(orders):
    orders.append(rows(0, 50))
    orders.compact()
    orders.append(rows(20, 30))
    orders.append(rows(100, 200))
    found = orders.advise()
    assert (found.columns, found.files, found.partitions) == (("id",), 3, 1)
    assert "name columns" in advice_lines(found)[-1]
    (id_,) = found.outlooks
    assert id_.now.most == 2
    assert id_.now.value_share == pytest.approx(id_.now.mean / 3)
    assert id_.now.group_value_share == pytest.approx(id_.now.value_share)
    assert len(orders.advise("id,name").outlooks) == 3


def test_the_columns_by_which_a_table_is_clustered_are_those_of_interest(orders):
    orders.declare_cluster_by("day*3")
    assert orders.advise().columns == ("day",) and orders.advise("id").columns == ("id",)


def test_a_file_without_statistics_may_hold_any_value(orders, tmp_path):
    orders.append(rows(0, 10).drop_columns("tags"))
    csv = tmp_path / "more.csv"
    csv.write_text("id,name\n50,x\n")
    orders.append_files([str(csv)])
    found = orders.advise("id")
    assert found.notes == ("1 file without bounds of column 'id': readers always open them",)
    assert found.outlooks[0].now.most == 2


def test_values_of_all_types_have_an_order(orders):
    import datetime
    from decimal import Decimal

    others = {
        "day": [datetime.date(2026, 11, 1 + number) for number in range(4)],
        "at": [datetime.datetime(2026, 11, 1 + number, tzinfo=datetime.UTC) for number in range(4)],
        "price": [Decimal(number) / 4 for number in range(4)],
        "share": [float("nan"), 0.5, 1.0, 2.0],
        "flag": [False, False, True, True],
        "raw": [b"a", b"b", b"c", b"d"],
    }
    orders.append(rows(0, 4, **others))
    orders.append(rows(4, 8, **others))
    for name in others:
        assert orders.advise([name]).outlooks[0].now.most == 2, name
        assert orders.advise([name]).notes == (), name


@pytest.mark.parametrize(("view", "values"), [(pa.string_view(), "abcd"), (pa.binary_view(), [b"a", b"b", b"c", b"d"])])
def test_views_have_the_order_of_what_is_stored(orders, tmp_path, view, values):
    pq.write_table(rows(0, 4, seen=pa.array(list(values)).cast(view)), tmp_path / "a.parquet")
    orders.append_files(tmp_path / "a.parquet")
    orders.append_files(tmp_path / "a.parquet")
    advice = orders.advise("seen")
    assert (advice.outlooks[0].now.most, advice.notes) == (2, ())


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("nobody", "it has id, name, tags"),
        ("tags", "have no order"),
        ("tags.x", "top level"),
        ("id*0", "no number above 0"),
        ("id,id", "twice"),
        ("", "is empty"),
        ("a,b,c,d,e", "at most 4"),
    ],
)
def test_bad_columns_are_one_line(orders, columns, says):
    orders.append(rows(0, 3))
    with pytest.raises(InputError, match=says) as raised:
        orders.advise(columns)
    assert "\n" not in str(raised.value)


def test_a_name_with_a_star_stands_in_quotes(tmp_path):
    """The name was read again without them, and what follows the star was taken for a weight."""
    table = deltacompact.open_catalog(tmp_path / "lake").create_table("t", primary_keys=["a*b"])
    table.append(pa.table({"a*b": [1, 2]}))
    assert table.advise('"a*b"*2').files == 1


def test_a_partition_key_is_refused(tmp_path):
    days = deltacompact.open_catalog(tmp_path / "lake").create_table("days", ["day"], ["id"])
    days.append(rows(0, 3), {"day": "1"})
    with pytest.raises(InputError, match="'day', a partition key"):
        days.advise("id,day")


FILES = 12
LOCAL = Settings(executor="local", local_threads=1)


def scattered(number: int) -> pa.Table:
    """Rows in the order of `id`, that may have any `x`."""
    draw = np.random.default_rng(number)
    ids = np.arange(200 * number, 200 * number + 200)
    return pa.table({"id": ids, "x": draw.integers(0, 10**6, 200), "u": draw.random(200)})


@pytest.fixture
def lying():
    """Twelve compacted files that follow each other by `id`, and lie over each other by `x`."""
    table = DeltaStreamCatalog(MemoryStore()).create_table("t", primary_keys=["id"])
    for number in range(FILES):
        table.append(scattered(number))
        table.compact(settings=LOCAL, rows_per_compacted_file=250)
    return table


@pytest.fixture
def small_files(monkeypatch):
    """A compaction writes files of 250 rows."""
    monkeypatch.setattr("deltacompact.delta_streams.advising.adviser.OPTIONS", Options(rows_per_compacted_file=312))


def test_files_over_each_other_pay_for_being_parted(lying, small_files):
    found = lying.advise(["x"])
    (x,) = found.outlooks
    assert (found.files, found.rewrite_files, found.worth_it) == (FILES, FILES, True)
    assert x.now.value_share > 0.9 and x.now.group_value_share > 0.9
    assert x.clustered.value_share < 0.2 and x.clustered.group_value_share < 0.2
    assert found.expected.wall_s > 0 and found.rewrite_bytes == found.bytes
    assert "worth it for 100" in advice_lines(found, 0.05)[-1]
    assert "USD" in advice_lines(found, 0.05)[-2]


def test_clustering_is_refused_with_a_figure_where_reads_save_less_than_it_costs(lying, small_files, monkeypatch):
    monkeypatch.setattr("deltacompact.planning.worth.FILE_S", 1e-9)  # opening a file costs nothing
    found = lying.advise("x", reads=2)
    assert (found.worth_it, found.rewrite_files) == (False, FILES)
    assert f"paid for after {found.pays_after:,} reads, not worth it for 2" in advice_lines(found)[-1]


def test_conjunctions_are_foreseen(lying, small_files):
    x, u, both = lying.advise("x*2,u").outlooks
    assert both.clustered.value_share < min(x.clustered.value_share, u.clustered.value_share)
    assert both.now.value_share > 0.9 and both.clustered.group_range_share < 0.6


def test_the_expectation_holds_for_what_a_compaction_then_writes(lying, small_files):
    expected = lying.advise("x,u")
    cost = expected.expected
    lying.compact(settings=LOCAL, rows_per_compacted_file=int(250 / 0.8), cluster_by="x,u")
    now = lying.advise("x,u")
    for foreseen, found in zip(expected.outlooks, now.outlooks, strict=True):
        assert found.now.value_share == pytest.approx(foreseen.clustered.value_share, rel=0.4)
    assert (now.rewrite_files, now.rewrite_bytes, now.pays_after) == (0, 0, None)
    assert "nothing to do: no files overlap" in "".join(advice_lines(now))
    assert cost.core_seconds > now.expected.core_seconds == 0


def test_no_option_is_named_that_delta_streams_do_not_have(lying, small_files):
    lying.compact(settings=LOCAL, rows_per_compacted_file=312, cluster_by="x,u")
    found = lying.advise("x*9,u")
    assert found.rewrite_files == 0 and found.saved_s > 0
    assert "nothing to do" in advice_lines(found)[-1] and "rewrite-all" not in "".join(advice_lines(found))


def test_files_that_have_to_wait_count_as_rewritten(lying, small_files):
    """Compactions by other columns have used up what may be rewritten: a compaction by x would do nothing now."""
    for column in ("x", "u", "id", "u"):
        lying.compact(settings=LOCAL, rows_per_compacted_file=312, cluster_by=column)
    assert "must wait" in str(lying.compact(settings=LOCAL, rows_per_compacted_file=312, cluster_by="x"))
    alone = lying.advise("x")
    assert alone.rewrite_files == alone.files > 4 and alone.expected.core_seconds > 0
    lying.append(scattered(FILES))
    assert lying.advise("x").rewrite_files == alone.files + 1


def test_the_ranges_of_a_file_are_joined_once_however_many_partitions_there_are(tmp_path, monkeypatch):
    days = deltacompact.open_catalog(tmp_path).create_table("days", partition_keys=["day"], primary_keys=["id"])
    for day in range(3):
        days.append(rows(0, 9), {"day": day})
    joined = []
    monkeypatch.setattr(costs, "joined", lambda ranges: joined.append(ranges) or value_ranges.joined(ranges))
    assert days.advise("id").files == 3
    assert len(joined) == 3


def test_what_a_compaction_by_these_columns_would_leave_costs_nothing(lying, small_files):
    lying.compact(settings=LOCAL, rows_per_compacted_file=312, cluster_by="id")
    lying.append(scattered(FILES))
    found = lying.advise("id")
    assert found.files > 10 and found.rewrite_files == 1  # what comes behind all others touches none of them


def test_a_table_that_nobody_can_compact_yet_has_an_outlook_and_no_cost():
    table = DeltaStreamCatalog(MemoryStore()).create_table("t")
    table.append(scattered(0))
    table.append(scattered(1))
    found = table.advise("x")
    assert found.outlooks[0].clustered is not None and found.expected is None
    assert "no primary keys yet" in found.notes[-1] and "name columns" not in advice_lines(found)[-1]


def test_keys_that_another_process_has_declared_count():
    store = MemoryStore()
    table = DeltaStreamCatalog(store).create_table("t")
    table.append(scattered(0))
    DeltaStreamCatalog(store).table("t").compact(primary_keys=["id"], settings=LOCAL)
    assert table.advise().table_id == "t"


def test_the_command(orders, tmp_path, capsys):
    where = str(tmp_path / "lake")
    assert run(["advise", where, "orders"]) == 0
    orders.append(rows(0, 3))
    orders.append(rows(2, 5))
    capsys.readouterr()
    assert run(["advise", where, "orders", "--plot", str(tmp_path / "boxes.svg")]) == 0
    assert "id  2.0" not in capsys.readouterr().out
    assert run(["advise", where, "orders", "--columns", "name", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outlooks"][0]["now"]["most"] == 2
    assert run(["advise", where, "orders", "--columns", "id", "--reads", "7", "--usd-per-core-hour", "1"]) == 0
    assert "core-seconds, 0." in capsys.readouterr().out
    assert run(["advise", where, "orders", "--branch", "b"]) == 2
    assert "is for tables of Iceberg catalogs" in capsys.readouterr().err
