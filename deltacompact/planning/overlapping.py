"""Chooses the compacted files that a session lays out anew with the rows that it writes, by boxes and rows. Pure.

    cluster_by     "day"
    base 14        day 1 to 9, run 14, 9 M rows    base 20    day 9 to 12, run 20, 90 k rows
    delta 80       day 8 to 13, 80 k rows          is written in any case, and laid out
    -> base 20     overlaps it and is no larger: chosen.     Base 14 is larger than all newer rows: it waits
    delta 81       day 14 to 15                    overlaps nothing: rows in the order of time touch no base file

Sizes are rows, because deltas may have another compression, or be text. The log has the run of each file (`Clustered`).
A file that was never laid out, or by other columns, may have any value, and counts as older than all runs.

    account       1,000 rows came at first, 1,000 were rewritten       the version stores both numbers
    delta 81      10 more come    4 x 1,010 - 1,000 = 3,040 may be rewritten; a choice of more rows waits
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from deltacompact.base.data_file import DataFile, LayoutAccount
from deltacompact.base.model import INT64_MAX
from deltacompact.base.numbers import Ordinal
from deltacompact.layout.boxes import Boxes, Ranks, boxes_of
from deltacompact.layout.cluster_by import ClusterColumn, cluster_columns, heaviest
from deltacompact.layout.extents import STAYS, Extents, extents_of
from deltacompact.layout.overlap import LayoutChoice, RewriteAllowance, to_lay_out
from deltacompact.layout.value_ranges import ValueRanges, column_bounds, ranges_from

NEVER = -1
"""The run of files that were never laid out."""
ROWS_CHOSEN_MAX = 2**31
"""So many rows have destinations (arrangement.py) where files are half full on average."""


@dataclass(frozen=True, slots=True)
class LayoutBound:
    """Up to `times` as many rows may be rewritten as came.

    account    of the version. None: nothing was counted yet, so all present rows count as having come
    since      files of this run or a later one came since the version
    """

    times: float
    account: LayoutAccount | None = None
    since: int = INT64_MAX

    def allowance(self, runs: Ranks, sizes: Ranks, most: float = math.inf) -> RewriteAllowance:
        """The allowance of a session, `most` rows at most. `runs`, `sizes`: of its files."""
        came = sizes if self.account is None else sizes * (runs >= self.since)
        account = self.account or LayoutAccount(0, 0)
        return replace(RewriteAllowance.over_time(self.times, account, came), most=most)


def columns_of(cluster_by: str | None, schema: pa.Schema) -> tuple[ClusterColumn, ...]:
    """The columns to cluster by that the rows have. All others would be null in every row."""
    columns = cluster_columns("cluster_by", cluster_by or "")
    return tuple(
        column
        for column in columns
        if column.name in schema.names and not pa.types.is_null(schema.field(column.name).type)
    )


def overlapping_files(
    files: Sequence[DataFile],
    cluster_by: str,
    schema: pa.Schema,
    written: Iterable[tuple[ValueRanges, int]] = (),
    bound: LayoutBound | None = None,
    cold: Collection[str] = (),
) -> LayoutChoice:
    """The compacted files that are laid out anew, and those that wait.

    written    the ranges of rows that are written in any case, and their number
    bound      how many rows may be rewritten, of those that one session can lay out. None: all
    cold       paths of files that stay. A file that overlaps only these stays, too
    """
    if cold and (stays := np.array([file.path in cold for file in files], bool)).any():
        warm = [file for file, is_cold in zip(files, stays.tolist(), strict=True) if not is_cold]
        choice = overlapping_files(warm, cluster_by, schema, written, bound)
        chosen, waits = np.zeros(len(files), bool), np.zeros(len(files), bool)
        chosen[~stays], waits[~stays] = choice.chosen, choice.waits
        return LayoutChoice(chosen, waits)
    new = list(written)
    ranges = [*(_ranges(file, schema) for file in files), *(known for known, _ in new)]
    boxes = _boxes(ranges, [*(file.rows for file in files), *[1] * len(new)], cluster_by, schema)
    sizes = np.array([file.rows for file in files] + [count for _, count in new], np.int64)
    runs = [file.clustered.run if file.clustered else NEVER for file in files]
    now = max([*runs, bound.since if bound else NEVER]) + 1
    ages: Ranks = np.array([*runs, *[now] * len(new)], np.int64)
    laid_out = np.array([_is_by(file, cluster_by) for file in files] + [False] * len(new), bool)
    allowance = None if bound is None else bound.allowance(ages, sizes, ROWS_CHOSEN_MAX - sum(rows for _, rows in new))
    first = heaviest(columns_of(cluster_by, schema))
    choice = to_lay_out(boxes, sizes, ages, laid_out, allowance, heaviest=first)
    return LayoutChoice(choice.chosen[: len(files)], choice.waits[: len(files)])


def extents_in_log(
    files: Sequence[DataFile], written: Sequence[tuple[ValueRanges, int]], cluster_by: str, schema: pa.Schema
) -> Extents:
    """The extents of the rows that are written, among the rows of all files.

    `files`: those that stay. `written`: for each source that is rewritten, its ranges and its number of live rows.
    """
    ranges = [*(_ranges(file, schema) for file in files), *(known for known, _ in written)]
    rows = [*(file.live_rows for file in files), *(count for _, count in written)]
    group = np.array([STAYS] * len(files) + [0] * len(written), np.int64)
    (extents,) = extents_of(_boxes(ranges, rows, cluster_by, schema), group, 1)
    return extents


def boxes_in_log(
    files: Sequence[DataFile], cluster_by: str, schema: pa.Schema, partitions: Ranks | None = None
) -> Boxes:
    """The boxes of files in the columns to cluster by. `partitions`: the number of each file's partition. None: there
    is one partition."""
    ranges, rows = [_ranges(file, schema) for file in files], [file.rows for file in files]
    return _boxes(ranges, rows, cluster_by, schema, partitions)


def _boxes(
    ranges: Sequence[ValueRanges],
    rows: Sequence[int],
    cluster_by: str,
    schema: pa.Schema,
    partitions: Ranks | None = None,
) -> Boxes:
    columns = columns_of(cluster_by, schema)
    bounds = [column_bounds(ranges, column.name, schema.field(column.name).type) for column in columns]
    of_files = np.zeros(len(ranges), np.int64) if partitions is None else partitions
    return boxes_of([column.name for column in columns], bounds, of_files, rows)


def known_ranges(file: DataFile, cluster_by: str, schema: pa.Schema) -> ValueRanges | None:
    """The ranges of a file in the columns to cluster by, from the log. None: the log lacks some."""
    known = _ranges(file, schema)
    return known if all(column.name in known for column in columns_of(cluster_by, schema)) else None


def _ranges(file: DataFile, schema: pa.Schema) -> Mapping[str, tuple[object, object]]:
    return ranges_from(file.clustered.ranges, file.schema, schema) if file.clustered else {}


def _is_by(file: DataFile, cluster_by: str) -> bool:
    return file.clustered is not None and file.clustered.by == cluster_by


WrittenRanges = Mapping[Ordinal, ValueRanges]
"""By ordinal, the ranges of a file that is rewritten in any case."""
