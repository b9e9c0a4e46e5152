"""show for an Iceberg catalog: its tables, with the totals in their newest snapshots.

data files   rows    bytes  delete files   committed (UTC)  compacted (UTC)  table
        12  1,200  2.1 MiB             3  2026-11-22 01:10                -  db.orders
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from deltacompact.base.notebooks import html_table
from deltacompact.base.partitions import done_for_each
from deltacompact.base.wording import counted, error_document, size
from deltacompact.iceberg.table.metadata import MAIN
from deltacompact.iceberg_modes.compacted import compacted_s
from deltacompact.reports.counting import Counting, silently
from deltacompact.reports.scale import Detail
from deltacompact.reports.words import Report, in_columns, minute

if TYPE_CHECKING:
    from deltacompact.iceberg.table.metadata import TableMetadata

_TOTALS = {
    "data_files": "total-data-files",
    "rows": "total-records",
    "bytes": "total-files-size",
    "delete_files": "total-delete-files",
}
"""The totals of the branch in the summary of a snapshot, if its writer has counted."""

_COLUMNS = ("data files", "rows", "bytes", "delete files", "committed (UTC)", "compacted (UTC)", "table")


def tables_document(
    catalog: str,
    names: Sequence[str],
    metadata_of: Callable[[str], TableMetadata],
    at_once: int,
    counting: Counting = silently,
) -> Report:
    """What the catalog says of its tables, asked for so many at a time, and the errors of those that it cannot load."""
    with counting(f"asking {catalog} for {counted(len(names), 'table')}", len(names)) as one_is_done:

        def asked(name: str) -> dict[str, Any]:
            try:
                return _document(name, metadata_of(name))
            finally:
                one_is_done()

        found, errors = done_for_each(names, asked, at_once)
    failed = [{"table": name, "error": error_document(error)} for name, error in errors]
    tables = sorted([*found, *failed], key=lambda table: str(table["table"]))
    return Report(tables, tuple(error for _, error in errors))


def _document(name: str, metadata: TableMetadata) -> dict[str, Any]:
    head = metadata.branch(MAIN)
    summary = head.summary if head else {}
    return {
        "table": name,
        "format_version": metadata.format_version,
        "snapshot_id": head.snapshot_id if head else None,
        **{field: int(summary[key]) if summary.get(key, "").isdigit() else None for field, key in _TOTALS.items()},
        "committed_s": head.timestamp_ms / 1000 if head else None,
        "compacted_s": compacted_s(metadata, head),
    }


def lines(name: str, tables: list[dict[str, Any]]) -> list[str]:
    """A line for each table."""
    if not tables:
        return [f"no tables in iceberg://{name}"]
    rows = [_cells(table) for table in tables if "error" not in table]
    failed = [f"{table['table']}: failed: {table['error']['message']}" for table in tables if "error" in table]
    return [*(in_columns([_COLUMNS, *rows], right=len(_COLUMNS) - 1) if rows else ()), *failed]


def tables_as_html(name: str, tables: list[dict[str, Any]]) -> str:
    """The tables, the ten of many with most delete files, in these columns: for notebooks."""
    failed = ("failed",) * (len(_COLUMNS) - 1)
    worst = Detail().chosen(tables, lambda table: ("error" in table, table.get("delete_files") or 0))
    rows = [(*failed, table["table"]) if "error" in table else _cells(table) for table in worst]
    return html_table(f"iceberg://{name}: {counted(len(tables), 'table')}", _COLUMNS, rows)


def _cells(table: dict[str, Any]) -> tuple[str, ...]:
    numbers = ["-" if table[name] is None else f"{table[name]:,}" for name in ("data_files", "rows", "delete_files")]
    times = ["-" if table[name] is None else minute(table[name]) for name in ("committed_s", "compacted_s")]
    stored = "-" if table["bytes"] is None else size(table["bytes"])
    return (numbers[0], numbers[1], stored, numbers[2], *times, table["table"])
