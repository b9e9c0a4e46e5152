"""Replays a log of reads against policies: how much each would have rewritten, and how little readers would have
opened.

    12:00   files a, b arrive        never: nothing     every run: a and b are laid out     depth > 8: not yet
    12:05   40 reads by customer     each opens 2       each opens 1
    end     never 0 written          every run 1 GB written, 40 files and 20 GB not opened

A simulated file is a set of points, evenly spread between its bounds, because only the bounds are known. A policy that
acts grows a split tree over the points of the files that it chooses; the points of each leaf are a new file. A read
asks for ranges of a twentieth of a partition's points, in all columns on which it has a predicate. Nothing is random:
the same log gives the same figures. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.layout.boxes import BoundPlaces, Boxes, Ranks
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.depth import RANGE_SHARE
from deltacompact.layout.extents import STAYS, Extents, extents_of, weighed
from deltacompact.layout.growing import grow
from deltacompact.layout.overlap import FileMask, met_in_partitions, to_lay_out
from deltacompact.layout.spread import even_steps, spread

STEPS_MAX = 50
"""A policy acts at most so often: if there are more commits, successive ones are put together."""
POINTS = 8_000
"""The points of all files together. A file has at least eight."""
QUESTIONS = 64
"""The number of ranges that stand for the reads by one set of columns between two steps."""

Points = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a file was committed, in Unix seconds, and its bytes."""

    at_s: float
    bytes: int


@dataclass(frozen=True, slots=True)
class SimulatedFile:
    """A file as points, of shape (points, columns). `age`: greater for later files."""

    points: Points = field(hash=False)
    partition: int
    bytes: float
    rows: float
    age: int
    laid_out: bool = False


Choice = Callable[[Sequence[SimulatedFile], Boxes], FileMask]
"""Decides at a step, for each file, whether it is laid out anew."""


@dataclass(frozen=True, slots=True)
class LayoutPolicy:
    """A rule that decides when files are laid out anew, and which."""

    name: str
    choice: Choice = field(hash=False)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a policy would have done: the runs that rewrote files, what they wrote, and what all reads opened."""

    policy: str
    runs: int = 0
    bytes_written: float = 0.0
    rows_written: float = 0.0
    files_opened: float = 0.0
    bytes_opened: float = 0.0


def policies(by: Sequence[ClusterColumn], depths: Iterable[float] = (2.0, 8.0)) -> tuple[LayoutPolicy, ...]:
    """Four kinds of policy: never; at every step; when a partition is deeper than a limit; in tiers, as a rewrite."""
    return (
        LayoutPolicy("never", lambda files, boxes: np.zeros(len(files), bool)),
        LayoutPolicy("every run", lambda files, boxes: _of_partitions(files, boxes, by, 1.0)),
        *(LayoutPolicy(f"depth > {depth:g}", _deeper(by, depth)) for depth in depths),
        LayoutPolicy("tiers", _in_tiers),
    )


def replayed(
    policy: LayoutPolicy,
    files: Boxes,
    arrivals: Sequence[Arrival],
    reads: Sequence[tuple[float, tuple[str, ...]]],
    by: Sequence[ClusterColumn],
    file_bytes: int,
) -> Replayed:
    """Replay a policy. `files`: their boxes, with their `arrivals`; `reads`: (when, the columns that are asked for)."""
    points = _points(files)
    held: list[SimulatedFile] = []
    done = Replayed(policy.name)
    for age, (begin_s, end_s, arrived) in enumerate(_steps(arrivals)):
        rows = files.rows
        held += [
            SimulatedFile(
                points[number], int(files.partitions[number]), arrivals[number].bytes, float(rows[number]), 2 * age
            )
            for number in arrived
        ]
        boxes = _boxes(held, by)
        chosen = policy.choice(held, boxes)
        if chosen.any():
            again = [file for file, is_chosen in zip(held, chosen.tolist(), strict=True) if is_chosen]
            held = [file for file, is_chosen in zip(held, chosen.tolist(), strict=True) if not is_chosen]
            held += _laid_out(again, _extents(boxes, chosen), by, file_bytes, 2 * age + 1)
            boxes = _boxes(held, by)
            written, rows_written = sum(file.bytes for file in again), sum(file.rows for file in again)
            done = replace(
                done,
                runs=done.runs + 1,
                bytes_written=done.bytes_written + written,
                rows_written=done.rows_written + rows_written,
            )
        asked = Counter(columns for at_s, columns in reads if begin_s <= at_s < end_s)
        for columns, times in sorted(asked.items()):
            opened, opened_bytes = _opened(held, boxes, [column.name in columns for column in by])
            done = replace(
                done,
                files_opened=done.files_opened + times * opened,
                bytes_opened=done.bytes_opened + times * opened_bytes,
            )
    return done


def _steps(arrivals: Sequence[Arrival]) -> Iterator[tuple[float, float, list[int]]]:
    """(begin, end, files that arrive at the begin) of each step. Reads before the first arrival see the first step."""
    moments = sorted({arrival.at_s for arrival in arrivals})
    begins = [moments[place] for place in spread(len(moments), STEPS_MAX).tolist()]
    if not begins:
        return
    begins[0] = moments[0]
    ends = [*begins[1:], math.inf]
    for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        arrived = [number for number, arrival in enumerate(arrivals) if begin <= arrival.at_s < end]
        yield begin if place else -math.inf, end, arrived


def _points(files: Boxes) -> list[Points]:
    """Points evenly spread in each box."""
    each = max(8, POINTS // max(1, files.files))
    steps = np.array([even_steps(each, column) for column in range(len(files.columns))])
    steps[:, 0], steps[:, -1] = 0.0, 1.0  # the corners of the box
    ends = [(places.of[low // 2], places.of[high // 2]) for places, low, high in _columns(files)]
    low, high = (np.array([pair[side] for pair in ends]) for side in (0, 1))
    return [
        (low[:, number, None] + steps * (high[:, number, None] - low[:, number, None])).T.astype(np.float64)
        for number in range(files.files)
    ]


def _columns(files: Boxes) -> Iterator[tuple[BoundPlaces, Ranks, Ranks]]:
    """(places, low, high) of each column."""
    return zip(files.places, files.low, files.high, strict=True)


def _boxes(files: Sequence[SimulatedFile], by: Sequence[ClusterColumn]) -> Boxes:
    partitions = np.array([file.partition for file in files], np.int64)
    low, high = (
        np.array([end(file.points, axis=0) for file in files]).reshape(-1, len(by)) for end in (np.min, np.max)
    )
    ranked = [_ranked(*ends, partitions) for ends in zip(low.T, high.T, strict=True)]
    rows = np.array([len(file.points) for file in files], np.int64)
    names = tuple(column.name for column in by)
    return Boxes(names, np.array([low for low, _ in ranked]), np.array([high for _, high in ranked]), partitions, rows)


def _ranked(low: Points, high: Points, partitions: Ranks) -> tuple[Ranks, Ranks]:
    """The ranks of bounds. Each partition has its own stretch of ranks."""
    _, dense = np.unique(np.concatenate([low, high]), return_inverse=True)
    ranks = dense.astype(np.int64) + np.concatenate([partitions, partitions]) * (dense.max(initial=0) + 1)
    _, dense = np.unique(ranks, return_inverse=True)
    ranks = 2 * dense.astype(np.int64)
    return ranks[: len(low)], ranks[len(low) :]


def _extents(boxes: Boxes, chosen: FileMask) -> list[Extents]:
    """The extents of the chosen files of each partition."""
    return extents_of(boxes, np.where(chosen, boxes.partitions, STAYS), int(boxes.partitions.max()) + 1)


def _laid_out(
    files: Sequence[SimulatedFile],
    extents: Sequence[Extents],
    by: Sequence[ClusterColumn],
    file_bytes: int,
    age: int,
) -> Iterator[SimulatedFile]:
    """The files that a split tree makes of the points of these, in each partition by itself."""
    for partition in sorted({file.partition for file in files}):
        own = [file for file in files if file.partition == partition]
        points = np.concatenate([file.points for file in own])
        sizes = np.concatenate([np.full(len(file.points), file.bytes / len(file.points)) for file in own])
        rows = np.concatenate([np.full(len(file.points), file.rows / len(file.points)) for file in own])
        sample = pa.table({column.name: points[:, place] for place, column in enumerate(by)})
        weighed_by = weighed(by, extents[partition])
        tree = grow(sample, weighed_by, sizes, max(1, min(round(float(sizes.sum()) / file_bytes), len(points) // 2)))
        leaf_of = np.repeat(np.arange(len(tree.leaves)), [leaf.cells for leaf in tree.leaves])
        leaves = leaf_of[tree.cells_of(sample)]
        for number, leaf in enumerate(tree.leaves):
            for part in np.array_split(np.flatnonzero(leaves == number), leaf.files):
                if len(part):
                    yield SimulatedFile(
                        points[part], partition, float(sizes[part].sum()), float(rows[part].sum()), age, laid_out=True
                    )


def _opened(files: Sequence[SimulatedFile], boxes: Boxes, asked: Sequence[bool]) -> tuple[float, float]:
    """(files, bytes) that a read opens, on average. `asked`: for each column, whether the read has a predicate on
    it."""
    points = np.concatenate([file.points for file in files])
    of_point = np.concatenate([np.full(len(file.points), file.partition) for file in files])
    chosen = spread(len(points), QUESTIONS)
    low, high = points[chosen], points[chosen].copy()
    for partition in np.unique(of_point[chosen]).tolist():
        own, here = np.sort(points[of_point == partition], axis=0), of_point[chosen] == partition
        for column in range(points.shape[1]):
            beyond = np.searchsorted(own[:, column], low[here, column]) + int(RANGE_SHARE * len(own))
            high[here, column] = own[np.minimum(beyond, len(own) - 1), column]
    least, most = (np.array([end(file.points, axis=0) for file in files]) for end in (np.min, np.max))
    meets = boxes.partitions[None, :] == of_point[chosen][:, None]
    for column in np.flatnonzero(asked).tolist():
        meets &= least[None, :, column] <= high[:, None, column]
        meets &= most[None, :, column] >= low[:, None, column]
    sizes = np.array([file.bytes for file in files])
    return float(meets.sum(axis=1).mean()), float((meets @ sizes).mean())


def _in_tiers(files: Sequence[SimulatedFile], boxes: Boxes) -> FileMask:
    sizes, ages = np.array([int(file.bytes) for file in files]), np.array([file.age for file in files], np.int64)
    return to_lay_out(boxes, sizes, ages, np.array([file.laid_out for file in files], bool)).chosen


def _deeper(by: Sequence[ClusterColumn], depth: float) -> Choice:
    return lambda files, boxes: _of_partitions(files, boxes, by, depth)


def _of_partitions(files: Sequence[SimulatedFile], boxes: Boxes, by: Sequence[ClusterColumn], depth: float) -> FileMask:
    """All files of partitions with new files, if a file there meets more than `depth` files in a column, on average."""
    new = np.array([not file.laid_out for file in files], bool)
    weights = sum(column.weight for column in by)
    met = np.array([column.weight / weights for column in by]) @ met_in_partitions(boxes)
    return ((met > depth) & (np.bincount(boxes.partitions, new) > 0))[boxes.partitions]
