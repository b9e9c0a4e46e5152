"""show for an Iceberg catalog: its tables, with the totals in their newest snapshots.

data files   rows    bytes  delete files   committed (UTC)  compacted (UTC)  table
        12  1,200  2.1 MiB             3  2026-11-22 01:10                -  db.orders
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltacompact.base.partitions import done_for_each
from deltacompact.base.wording import counted, error_document, size
from deltacompact.cli.answers import Failed, say_json
from deltacompact.iceberg.table.metadata import MAIN
from deltacompact.iceberg_modes.compacted import compacted_s
from deltacompact.reports.words import in_columns, minute

if TYPE_CHECKING:
    from deltacompact.catalog.iceberg import IcebergCatalog
    from deltacompact.iceberg.table.metadata import TableMetadata

_TOTALS = {
    "data_files": "total-data-files",
    "rows": "total-records",
    "bytes": "total-files-size",
    "delete_files": "total-delete-files",
}
"""The totals of the branch in the summary of a snapshot, if its writer has counted."""


def print_tables(catalog: IcebergCatalog, as_json: bool) -> None:
    """Print the tables of the catalog. Raises Failed for the first table that cannot be loaded."""
    from deltacompact.cli.console import err, out
    from deltacompact.cli.counting import counting

    names = catalog.tables()
    with counting(err, f"asking {catalog.name} for {counted(len(names), 'table')}", len(names)) as one_is_done:

        def asked(name: str) -> dict[str, Any]:
            try:
                return _document(name, catalog.metadata(name))
            finally:
                one_is_done()

        found, errors = done_for_each(names, asked, catalog.at_once)
    failed = [{"table": name, "error": error_document(error)} for name, error in errors]
    tables = sorted([*found, *failed], key=lambda table: str(table["table"]))
    if as_json:
        say_json(tables)
    else:
        for line in _lines(catalog.name, tables):
            out.print(line)
    if errors:
        raise Failed(errors[0][1])


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


def _lines(name: str, tables: list[dict[str, Any]]) -> list[str]:
    if not tables:
        return [f"no tables in iceberg://{name}"]
    head = ("data files", "rows", "bytes", "delete files", "committed (UTC)", "compacted (UTC)", "table")
    rows = [_cells(table) for table in tables if "error" not in table]
    failed = [f"{table['table']}: failed: {table['error']['message']}" for table in tables if "error" in table]
    return [*(in_columns([head, *rows], right=len(head) - 1) if rows else ()), *failed]


def _cells(table: dict[str, Any]) -> tuple[str, ...]:
    numbers = ["-" if table[name] is None else f"{table[name]:,}" for name in ("data_files", "rows", "delete_files")]
    times = ["-" if table[name] is None else minute(table[name]) for name in ("committed_s", "compacted_s")]
    stored = "-" if table["bytes"] is None else size(table["bytes"])
    return (numbers[0], numbers[1], stored, numbers[2], *times, table["table"])
