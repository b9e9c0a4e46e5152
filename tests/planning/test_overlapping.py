"""The compacted files that a session lays out anew: those that a bound allows come in the order of the table."""

from __future__ import annotations

import pyarrow as pa
from hand_made import file

from deltacompact.base.data_file import Clustered, LayoutAccount
from deltacompact.planning.overlapping import LayoutBound, overlapping_files

SCHEMA = pa.schema([("day", pa.int64()), ("customer", pa.int64())])


def test_a_bounded_new_layout_begins_with_the_least_values_of_the_heaviest_column():
    """Files with later days have earlier customers. 300 more rows may be rewritten."""
    ranges = [(("day", day, day + 9), ("customer", 9 - day, 18 - day)) for day in range(6)]
    files = [
        file(100, number=number, clustered=Clustered("day,customer", 1, of_file), schema=SCHEMA)
        for number, of_file in enumerate(ranges)
    ]
    bound = LayoutBound(1.0, LayoutAccount(came=600, rewritten=300), since=2)
    by_day, by_customer = (
        overlapping_files(files, cluster_by, SCHEMA, bound=bound) for cluster_by in ("day*3,customer", "day,customer*3")
    )
    assert by_day.chosen.tolist() == [True] * 3 + [False] * 3 == by_customer.waits.tolist()
    assert by_customer.chosen.tolist() == by_day.waits.tolist() == [False] * 3 + [True] * 3
