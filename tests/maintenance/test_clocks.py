"""Clocks that are wrong: ahead by days, set back. No row, file or token goes for it, and nothing waits for years.

the vacuum's machine     30 Nov 12:00       the store     26 Nov 12:00       a writer     began a minute ago
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from simulation import Simulation

from deltacompact import compact
from deltacompact.change_feed.stream_bookmarks import names_kept
from deltacompact.maintenance.vacuum.vacuum import vacuum

DAYS = 24 * 3600
ROW = pa.table({"k": [1], "v": ["a"]})


@pytest.fixture
def simulation():
    found = Simulation()
    found.catalog().create_table("t", primary_keys=["k"])
    found.catalog().append("t", ROW)
    return found


def ahead(simulation, days, work):
    """Work of a process whose clock is so many days ahead of the store's."""
    actor = simulation.start(work)
    actor.ahead_s = days * DAYS
    return actor.finish()


@pytest.mark.parametrize("days", [4, 400, -4])
def test_a_vacuum_whose_clock_is_days_ahead_takes_no_file_from_a_writer(simulation, days):
    writer = simulation.start(lambda catalog: catalog.append("t", pa.table({"k": [2], "v": ["b"]})))
    writer.run_to("put_if_absent", "/stream/")  # its file is written, its entry is not
    ahead(simulation, days, lambda catalog: vacuum(catalog, "t"))
    writer.finish()
    assert simulation.catalog().read("t").num_rows == 2


def test_a_vacuum_whose_clock_is_days_ahead_takes_no_file_from_a_reader(simulation):
    compact("t", delta_catalog_client=simulation.catalog())
    simulation.now_s += 1
    simulation.catalog().append("t", ROW)
    compact("t", delta_catalog_client=simulation.catalog())
    ahead(simulation, 4, lambda catalog: vacuum(catalog, "t"))
    assert simulation.catalog().read("t", version="1").num_rows == 1


@pytest.mark.parametrize(("consumer_days", "vacuum_days"), [(-31, 0), (0, 31), (-400, 400)])
def test_a_vacuum_takes_no_file_from_a_consumer_whatever_their_clocks_say(simulation, consumer_days, vacuum_days):
    compact("t", delta_catalog_client=simulation.catalog())

    def consume(catalog):
        table = catalog.table("t")
        rows = table.changes("1970-01-01", bookmark="mirror").read_all().num_rows
        return rows, table.commit_bookmark("mirror")

    ahead(simulation, consumer_days, consume)
    for key in (1, 2):
        simulation.now_s += 5 * DAYS
        simulation.catalog().append("t", pa.table({"k": [key], "v": ["b"]}))
        compact("t", delta_catalog_client=simulation.catalog())
    simulation.now_s += 5 * DAYS
    ahead(simulation, vacuum_days, lambda catalog: vacuum(catalog, "t"))
    rows, _ = ahead(simulation, consumer_days, consume)
    assert rows == 2
    kept = [names_kept(simulation.catalog(), "t", simulation.now_s + days * DAYS) for days in (30, 31)]
    assert kept[0] and not kept[1], "idle by the store's clock"


@pytest.mark.parametrize("days", [-40, 40])
def test_a_compaction_whose_clock_is_weeks_off_forgets_no_token(simulation, days):
    late = pa.table({"k": [1], "v": ["late"]})
    simulation.catalog().append("t", late, token="nightly")
    compact("t", delta_catalog_client=simulation.catalog())
    for number in range(3):
        simulation.now_s += 60
        simulation.catalog().append("t", pa.table({"k": [1], "v": [f"new {number}"]}), token=f"batch {number}")
        off = days if number == 1 else 0
        ahead(simulation, off, lambda catalog: compact("t", delta_catalog_client=catalog))
    assert simulation.catalog().append("t", late, token="nightly").skipped
    assert simulation.catalog().read("t").to_pylist() == [{"k": 1, "v": "new 2"}]
    assert simulation.catalog().append("t", late, token="batch 1").skipped


def test_a_clock_that_is_set_back_between_two_commits_changes_no_order(simulation):
    for number, days in enumerate([0, 1, -1, 0, -400]):
        rows = pa.table({"k": [1], "v": [f"commit {number}"]})
        ahead(simulation, days, lambda catalog, rows=rows: catalog.append("t", rows))
        if number % 2:
            ahead(simulation, -days, lambda catalog: compact("t", delta_catalog_client=catalog))
        assert simulation.catalog().read("t").to_pylist() == [{"k": 1, "v": f"commit {number}"}]
