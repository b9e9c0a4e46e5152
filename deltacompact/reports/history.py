"""The history of a table: a line for each version of a stream, or snapshot of a branch, the oldest first.

time (UTC)               operation  rows           files   bytes                version
2026-11-20 08:00:00.000  create     +0             +0      +0 B                 0
2026-11-20 09:10:11.512  compact    +9,000         +3      +2.1 MiB             1-50a3…
2026-11-21 09:10:12.040  compact    +700 -200      +1 -1   +300.0 KiB -1.0 MiB  2-77b1…
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from deltacompact.base.moments import spelled
from deltacompact.base.printable import named
from deltacompact.base.wording import size
from deltacompact.reports.scale import Detail
from deltacompact.reports.words import in_columns

if TYPE_CHECKING:
    from deltacompact.delta_streams.history import VersionMade
    from deltacompact.iceberg.history import SnapshotMade

_COUNTS = ("rows_added", "rows_removed", "files_added", "files_removed", "bytes_added", "bytes_removed")


def version_document(made: VersionMade) -> dict[str, Any]:
    return {
        "partition": dict(made.partition.values),
        "version": made.version,
        **_of_both(made),
        "rows": made.rows,
        "files": made.files,
        "deltas": made.deltas,
        "session": made.session,
        "tokens": list(made.tokens),
    }


def snapshot_document(made: SnapshotMade) -> dict[str, Any]:
    return {
        "snapshot_id": made.snapshot_id,
        **_of_both(made),
        "delete_files_added": made.delete_files_added,
        "delete_files_removed": made.delete_files_removed,
        "session": made.session,
        "attempt": made.attempt,
        "summary": dict(made.summary),
    }


def _of_both(made: VersionMade | SnapshotMade) -> dict[str, Any]:
    time = None if made.time is None else spelled(made.time)
    return {"time": time, "operation": made.operation, **{name: getattr(made, name) for name in _COUNTS}}


def version_lines(made: Sequence[dict[str, Any]], detail: Detail) -> list[str]:
    """Of several partitions, a line with its name stands above those of each; of many, the ten that changed last."""
    partitions = [list(versions) for _, versions in groupby(made, key=lambda line: line["partition"])]
    lines: list[str] = []
    for versions in detail.chosen(partitions, lambda versions: versions[-1]["time"] or ""):
        lines += [f"{named(versions[0]['partition'])}:"] if len(partitions) > 1 else []
        lines += _lines(versions, ("deltas", "version", "session or tokens"), _of_version)
    return [*lines, *detail.rest(len(partitions), "partition")] or ["no versions: the table holds no data"]


def snapshot_lines(made: Sequence[dict[str, Any]]) -> list[str]:
    if not made:
        return ["no snapshots: nothing was committed yet"]
    return _lines(made, ("delete files", "snapshot", "attempt or session"), _of_snapshot)


def _lines(
    made: Sequence[dict[str, Any]], others: tuple[str, ...], of_kind: Callable[[dict[str, Any]], tuple[str, ...]]
) -> list[str]:
    head = ("time (UTC)", "operation", "rows", "files", "bytes", *others)
    return in_columns([head, *((*_cells(entry), *of_kind(entry)) for entry in made)])


def _cells(entry: dict[str, Any]) -> tuple[str, ...]:
    counts = [_change(entry[f"{what}_added"], entry[f"{what}_removed"], "{:,}".format) for what in ("rows", "files")]
    return (
        entry["time"] or "-",
        entry["operation"] or "-",
        *counts,
        _change(entry["bytes_added"], entry["bytes_removed"], size),
    )


def _of_version(entry: dict[str, Any]) -> tuple[str, ...]:
    return f"{entry['deltas']:,}", entry["version"], entry["session"] or ", ".join(entry["tokens"]) or "-"


def _of_snapshot(entry: dict[str, Any]) -> tuple[str, ...]:
    deletes = _change(entry["delete_files_added"], entry["delete_files_removed"], "{:,}".format)
    return deletes, str(entry["snapshot_id"]), entry["attempt"] or entry["session"] or "-"


def _change(added: int | None, removed: int | None, words: Callable[[int], str]) -> str:
    """What came and what went; "-" where nobody counted."""
    if added is None and removed is None:
        return "-"
    parts = [f"{sign}{words(count)}" for sign, count in (("+", added), ("-", removed)) if count]
    return " ".join(parts) or "0"
