"""How often and how long a commit is tried: a table's properties, and our own defaults.

num-retries 0       one attempt
nothing said        101 attempts; no answer to the 1st: wait 0.05 to 0.1 s, to the 2nd: 0.1 to 0.2 s, … at most 5 s
others came first   5 attempts at once, then a wait of 0.05 to 0.1 s, 5 attempts, 0.1 to 0.2 s, …
"""

from __future__ import annotations

import pytest

from deltacompact.base.errors import InputError
from deltacompact.iceberg.commit.patience import Patience


def test_a_table_that_says_nothing_gets_our_defaults():
    assert Patience.of({}) == Patience() == Patience(101, 0.1, 5.0, 1800.0)


def test_properties_are_retries_and_milliseconds():
    properties = {
        "commit.retry.num-retries": "0",
        "commit.retry.min-wait-ms": " 20 ",
        "commit.retry.max-wait-ms": "70",
        "commit.retry.total-timeout-ms": "1500",
    }
    assert Patience.of(properties) == Patience(attempts=1, wait_first_s=0.02, wait_longest_s=0.07, total_s=1.5)


@pytest.mark.parametrize(("attempt", "longest_s"), [(1, 0.1), (2, 0.2), (4, 0.8), (7, 5.0), (5_000, 5.0)])
def test_waits_double_up_to_the_longest(attempt, longest_s):
    waits = [Patience().wait_s(attempt, is_lost=False) for _ in range(200)]
    assert longest_s / 2 <= min(waits) < 0.6 * longest_s and 0.9 * longest_s < max(waits) <= longest_s


def test_attempts_that_others_came_before_are_repeated_at_once_five_at_a_time():
    waits = [Patience().wait_s(attempt, is_lost=True) for attempt in range(1, 12)]
    assert [number for number, wait_s in enumerate(waits, 1) if wait_s] == [5, 10]
    assert 0.05 <= waits[4] <= 0.1 <= waits[9] <= 0.2


@pytest.mark.parametrize("value", ["-1", "1.5", "many", ""])
def test_a_property_that_is_no_whole_number_is_named(value):
    with pytest.raises(InputError, match=r"commit\.retry\.num-retries .* is not a whole number"):
        Patience.of({"commit.retry.num-retries": value})
