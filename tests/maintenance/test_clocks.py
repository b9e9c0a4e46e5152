"""Clocks that are wrong: ahead by days, set back. No row, file or token goes for it, and nothing waits for years.

the vacuum's machine     30 Nov 12:00       the store     26 Nov 12:00       a writer     began a minute ago
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from simulation import Simulation

from deltacompact import compact
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
