"""The report of `show --versions`: the versions of each stream of a table."""

from __future__ import annotations

from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from deltacompact.base.model import Partition
from deltacompact.base.partitions import done_for_each
from deltacompact.base.printable import named
from deltacompact.base.wording import counted, error_document
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.streams import Streams
from deltacompact.reports.scale import Detail
from deltacompact.reports.words import Report, moment

if TYPE_CHECKING:
    from rich.console import Console


def versions_document(catalog: Streams, table_id: str) -> Report:
    """The versions of each partition, oldest first."""
    from deltacompact.delta_streams.versions import versions

    def about(partition: Partition) -> list[dict[str, Any]]:
        return [
            {
                "partition": dict(partition.values),
                "version": info.state.version,
                "state": info.state.lifecycle.value,
                "sealed_s": info.sealed_s,
                "retained": info.retained,
                "rows": info.rows,
                "files": len(info.state.compacted.files) if info.state.compacted else 0,
                "deltas": len(info.state.deltas),
                "taken_out": _taken_out(info.state),
            }
            for info in versions(catalog, table_id, partition)
        ]

    found, errors = done_for_each(catalog.partitions(table_id), about, catalog.at_once)
    failed = [{"partition": dict(partition.values), "error": error_document(error)} for partition, error in errors]
    return Report([row for rows in found for row in rows] + failed, tuple(error for _, error in errors))


def _taken_out(state: StreamState) -> dict[str, Any] | None:
    """The file that a version was written without, and its live rows then."""
    taken = state.opened.taken_out
    return None if taken is None else {"file": taken.path, "rows": taken.rows}


def _badness_of_versions(versions: list[dict[str, Any]]) -> tuple[bool, int]:
    return "error" in versions[0], len(versions)


def print_versions(out: Console, shown: Report, detail: Detail) -> None:
    """A line for each version, of many partitions for those with most versions."""
    if not shown.document:
        out.print("no versions: the table holds no data")
    partitions: list[list[dict[str, Any]]] = [
        list(rows) for _, rows in groupby(shown.document, key=lambda row: row["partition"])
    ]
    chosen = detail.chosen(partitions, _badness_of_versions)
    for version in chain.from_iterable(chosen):
        out.print(_version_line(version), style="red" if "error" in version else "")
    for line in detail.rest(len(partitions), "partition"):
        out.print(line)


def _version_line(version: dict[str, Any]) -> str:
    if "error" in version:
        return f"{named(version['partition'])}: failed: {version['error']['message']}"
    when = "active" if version["sealed_s"] is None else f"sealed {moment(version['sealed_s'])}"
    kept = "" if version["retained"] else ", vacuumed"
    if taken := version["taken_out"]:
        kept += f", without {taken['file']} and its {counted(taken['rows'], 'row')}"
    return (
        f"{named(version['partition'])}: {version['version']}  {when}{kept}  {counted(version['rows'], 'row')} in "
        f"{counted(version['files'], 'file')}, {counted(version['deltas'], 'delta')} since"
    )
