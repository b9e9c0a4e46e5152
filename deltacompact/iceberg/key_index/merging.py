"""Which runs are merged with the next one: pure. A run is merged once the newer runs have grown to its size.

    runs        8 4 2 1     new rows 1      1 + 1 -> 2, 2 + 2 -> 4, 4 + 4 -> 8, 8 + 8 -> 16      one run of 16
    runs        8 4 2       new rows 1      8 4 2 1
    runs        8 of which 3 live           merged in any case: most of what it has is gone from the table

After n rounds of equal size each row has been written at most 1 + log2(n) times. If every round wrote the whole index,
it would be n / 2 times: 32.5 for 64 rounds, against 4. An index has at most about log2(n) runs, and each is asked.
"""

from __future__ import annotations

from collections.abc import Sequence


def runs_to_merge(runs: Sequence[tuple[int, int]], new_rows: int) -> list[int]:
    """The numbers of the runs to merge, in their order. Each run is given as (all rows, rows of live files)."""
    chosen = {number for number, (rows, live) in enumerate(runs) if 2 * live < rows}
    size = new_rows + sum(runs[number][1] for number in chosen)
    for number in reversed(range(len(runs))):
        if number in chosen:
            continue
        if runs[number][1] > size:
            break
        chosen.add(number)
        size += runs[number][1]
    return sorted(chosen)
