"""What layouts gain and cost, by hand: core-seconds that reads save, beside those of the work."""

from __future__ import annotations

import pytest
from file_boxes import boxes_by_hand

from deltacompact.planning.simulated import PolicyOutcome
from deltacompact.planning.work import FIRST_RATES
from deltacompact.planning.worth import FILE_S, LayoutGain, gained_s, read_s, saved_s


def test_a_read_waits_for_each_file_and_decodes_what_it_reads():
    assert read_s(3, 0) == pytest.approx(3 * FILE_S)
    assert read_s(0, 1e9) == pytest.approx(1e9 * FIRST_RATES["base_byte"])
    assert read_s(3, 1e9) == pytest.approx(read_s(3, 0) + read_s(0, 1e9))


def test_what_lies_as_in_a_grid_saves_nothing():
    assert saved_s(boxes_by_hand([[(0, 1), (2, 3), (4, 5), (6, 7)]]), 1e6) == [0.0]
    (saved,) = saved_s(boxes_by_hand([[(0, 9)] * 4]), 1e6)
    assert saved == pytest.approx(read_s(3, 3e6))  # each meets three others


def test_a_partition_counts_by_its_rows_and_only_if_something_is_chosen():
    boxes = boxes_by_hand([[(0, 9), (0, 9), (0, 9), (0, 9)]], partitions=["a", "a", "b", "b"])
    whole = gained_s(boxes, [100] * 4, [True] * 4)
    assert whole["c0"] == pytest.approx(read_s(1, 100))
    assert gained_s(boxes, [100] * 4, [True, True, False, False])["c0"] == pytest.approx(whole["c0"] / 2)


def test_gain_is_what_reads_save_for_each_second_of_work():
    gain = LayoutGain(3.0, {"day": 2.0, "user": 5.0}, cost_s=10.0)
    assert gain.by_heat({"day": 10.0, "gone": 99.0}) == pytest.approx(2.0)
    assert LayoutGain().by_heat({"day": 10.0}) == 0.0
    assert PolicyOutcome("tiers", 1, 0, cost_s=2.0, files_not_opened=0, bytes_not_opened=0, saved_s=5.0).net_s == 3.0
