"""Reads replayed against policies: what is written and opened, by hand and against each other; always the same."""

from __future__ import annotations

import pytest
from file_boxes import boxes_by_hand

from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.simulation import STEPS_MAX, Arrival, policies, replayed

BY = (ClusterColumn("c0"),)
MB = 1 << 20


def outcomes(boxes, arrivals, reads, by=BY):
    found = [replayed(policy, boxes, arrivals, reads, by, MB) for policy in policies(by, (2.0,))]
    return {replay.policy: replay for replay in found}


def spread_out(count, columns=1):
    """Files that arrive one a second, each all over the place."""
    boxes = boxes_by_hand([[(0, 1000 + number) for number in range(count)] for _ in range(columns)])
    return boxes, [Arrival(float(number), MB) for number in range(count)]


def test_reads_open_what_files_meet_and_less_once_they_are_laid_out():
    boxes, arrivals = spread_out(8)
    found = outcomes(boxes, arrivals, [(100.0, ("c0",))] * 10)
    assert (found["never"].files_opened, found["never"].bytes_opened) == pytest.approx((80.0, 80.0 * MB), rel=0.02)
    assert (found["never"].runs, found["never"].bytes_written) == (0, 0.0)
    every, tiers, deep = found["every run"], found["tiers"], found["depth > 2"]
    assert every.bytes_written == pytest.approx(
        sum(range(2, 9)) * MB
    )  # all that is there, at each arrival but the first
    assert 0 < tiers.bytes_written < every.bytes_written
    assert deep.runs < every.runs
    assert every.files_opened < 20 < 80.0
    assert tiers.files_opened < 40


def test_reads_see_what_was_there_when_they_came():
    boxes, arrivals = spread_out(8)
    reads = [(float(moment), ("c0",)) for moment in (-5, 0, 3)]
    assert outcomes(boxes, arrivals, reads)["never"].files_opened == pytest.approx(1 + 1 + 4, rel=0.02)
    never = outcomes(boxes, arrivals, [(100.0, ())])  # no predicate on them: whatever lies where, all is opened
    assert {round(replay.files_opened / replay.bytes_opened * MB, 6) for replay in never.values()} == {1.0}
    assert len({round(replay.bytes_opened) for replay in never.values()}) == 1


def test_data_that_arrive_in_order_need_no_policy():
    ranges = [[(10 * number, 10 * number + 9) for number in range(8)]]
    found = outcomes(boxes_by_hand(ranges), [Arrival(float(number), MB) for number in range(8)], [(9.0, ("c0",))])
    assert {replay.bytes_written for replay in found.values()} == {0.0}


def test_partitions_are_laid_out_each_by_itself():
    ranges = [[(0, 100)] * 4]
    boxes = boxes_by_hand(ranges, partitions=["a", "a", "b", "c"])
    found = outcomes(boxes, [Arrival(0.0, MB)] * 4, [])
    assert found["every run"].bytes_written == pytest.approx(2 * MB)  # a's


@pytest.mark.slow
@pytest.mark.parametrize("files", [1, 120])
def test_the_same_log_gives_the_same_figures_in_bounded_steps(files):
    boxes, arrivals = spread_out(files, columns=2)
    by = (ClusterColumn("c0", 3.0), ClusterColumn("c1"))
    reads = [(float(number % files), ("c0",) if number % 3 else ("c0", "c1")) for number in range(40)]
    one, other = (outcomes(boxes, arrivals, reads, by) for _ in range(2))
    assert one == other
    assert max(each.runs for each in one.values()) <= STEPS_MAX
    assert all(each.files_opened <= one["never"].files_opened for each in one.values())


@pytest.mark.slow
def test_tiers_divide_by_other_columns_what_comes_in_the_order_of_one():
    """As a rewrite does. By c0 it lies close already: divided by both, tiers opened 1.8 times the files."""
    ranges = [[(10 * number, 10 * number + 14) for number in range(64)], [(0, 1000 + number) for number in range(64)]]
    arrivals = [Arrival(float(number), MB) for number in range(64)]
    by = (ClusterColumn("c0"), ClusterColumn("c1"))
    found = outcomes(boxes_by_hand(ranges), arrivals, [(1000.0, ("c1",))], by)
    assert found["tiers"].bytes_written < 0.2 * found["every run"].bytes_written
    assert found["tiers"].files_opened < 1.5 * found["every run"].files_opened
