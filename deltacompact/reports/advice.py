"""advise in words.

db.orders: 240 data files, 12.0 GiB, 4 partitions
                depth           a value           a range           of row groups     clustered
  day           3.1, 9 at most  1.2 % of files    5.9 % of files    1.1 % · 5.6 %     5.1 % · 9.8 %
  customer      60, 60 at most  100.0 % of files  100.0 % of files  98.0 % · 99.0 %   8.0 % · 12.5 %
  together      3.0, 9 at most  1.2 % of files    5.8 % of files    1.0 % · 5.4 %     0.4 % · 1.9 %
240 files overlap, 12.0 GiB: laid out anew in 61.0 s, 480.0 core-seconds
a read takes 4.1 core-seconds less, so 118 reads pay for that: too many, 100 are expected
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deltacompact.base.wording import counted, size

if TYPE_CHECKING:
    from deltacompact.layout.advice import Advice, Outlook
    from deltacompact.layout.depth import LayoutDepth


def advice_lines(advice: Advice, usd_per_core_hour: float | None = None) -> list[str]:
    """The advice, the last line first of all: whether it is worth it."""
    partitions = f", {counted(advice.partitions, 'partition')}" if advice.partitions > 1 else ""
    head = f"{advice.table_id}: {counted(advice.files, 'data file')}, {size(advice.bytes)}{partitions}"
    return [head, *_table(advice.outlooks), *advice.notes, *_verdict(advice, usd_per_core_hour)]


def _table(outlooks: tuple[Outlook, ...]) -> Iterator[str]:
    if not outlooks:
        return
    rows = [["", "depth", "files read for a value, a range", "row groups", "clustered, files", "row groups"]]
    rows += [
        [_name(outlook.now), f"{outlook.now.mean:,.1f}, at most {outlook.now.most:,}", *_shares(outlook)]
        for outlook in outlooks
    ]
    kept = [place for place in range(len(rows[0])) if any(row[place] for row in rows[1:])]
    widths = {place: max(len(row[place]) for row in rows) for place in kept}
    for row in rows:
        yield "  " + "  ".join(row[place].ljust(widths[place]) for place in kept).rstrip()


def _shares(outlook: Outlook) -> Iterator[str]:
    for depth in (outlook.now, outlook.clustered):
        yield "" if depth is None else f"{depth.value_share:.1%}, {depth.range_share:.1%}"
        known = depth is not None and depth.group_value_share is not None
        yield f"{depth.group_value_share:.1%}, {depth.group_range_share:.1%}" if depth is not None and known else ""


def _name(depth: LayoutDepth) -> str:
    return depth.columns[0] if len(depth.columns) == 1 else "together"


def _verdict(advice: Advice, usd_per_core_hour: float | None) -> Iterator[str]:
    if advice.expected is None:
        if advice.files and advice.pays_after is None and not any(outlook.clustered for outlook in advice.outlooks):
            yield "name columns to hear what clustering by them would bring: --columns day,customer"
        return
    if not advice.rewrite_files:
        yield "nothing to do: no files overlap by these columns"
        return
    cost = "" if usd_per_core_hour is None else f", {advice.expected.usd(usd_per_core_hour):.4f} USD"
    overlap = f"{counted(advice.rewrite_files, 'file')} overlap, {size(advice.rewrite_bytes)}"
    work = f"{advice.expected.wall_s:,.1f} s, {advice.expected.core_seconds:,.1f} core-seconds{cost}"
    yield f"{overlap}: to lay them out anew takes {work}"
    if advice.pays_after is None:
        yield "not worth it: readers would open no fewer files"
        return
    yield f"a read of a range of one column takes {advice.saved_s:,.2f} core-seconds less: {_worth(advice)}"


def _worth(advice: Advice) -> str:
    paid = f"paid for after {counted(advice.pays_after or 0, 'read')}"
    if advice.worth_it:
        return f"{paid}, worth it for {advice.reads:,}"
    return f"{paid}, not worth it for {advice.reads:,}"
