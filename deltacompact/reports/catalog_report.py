"""The report of `show` on a catalog: its tables, with the sizes of their streams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deltacompact.base.model import Partition
from deltacompact.base.notebooks import html_table
from deltacompact.base.partitions import done_for_each
from deltacompact.base.wording import counted, error_document
from deltacompact.delta_streams.sizes import sizes_of
from deltacompact.delta_streams.streams import Streams
from deltacompact.reports.counting import Counting, silently
from deltacompact.reports.declared import keys_document
from deltacompact.reports.scale import Detail
from deltacompact.reports.size_cells import SIZE_COLUMNS, badness, size_cells, sizes_or_failed
from deltacompact.reports.sizes import added, sizes_document
from deltacompact.reports.words import Report, in_columns

if TYPE_CHECKING:
    from rich.console import Console


_TABLES_AT_ONCE = 8
"""Tables whose partitions are looked for at a time: each asks the store for many at a time itself."""


def catalog_document(catalog: Streams, quick: bool = False, counting: Counting = silently) -> Report:
    """The tables of a catalog, with the sizes of their streams unless `quick`. They are opened side by side."""
    names = catalog.tables()
    at_once = min(catalog.at_once, _TABLES_AT_ONCE)
    there, errors = done_for_each(names, lambda name: (catalog.described(name), catalog.partitions(name)), at_once)
    rows: dict[str, dict[str, Any]] = {
        table.table_id: {**keys_document(table), "partitions": len(partitions)} for table, partitions in there
    }
    rows |= {name: {"table": name, "error": error_document(error)} for name, error in errors}
    unreadable: list[tuple[Any, Exception]] = []
    if not quick:
        unreadable = _add_sizes(
            catalog, rows, [(table.table_id, each) for table, found in there for each in found], counting
        )
    return Report([rows[name] for name in names], tuple(error for _, error in (*errors, *unreadable)))


def _add_sizes(
    catalog: Streams, rows: dict[str, dict[str, Any]], streams: Sequence[tuple[str, Partition]], counting: Counting
) -> list[tuple[Any, Exception]]:
    """Add sizes to the rows of tables. Of a table with streams that cannot be read, those of the others."""
    now_s = catalog.clock()
    with counting(f"opening the streams of {counted(len(rows), 'table')}", len(streams)) as one_is_done:

        def opened(stream: tuple[str, Partition]) -> tuple[str, dict[str, Any]]:
            try:
                return stream[0], sizes_document(sizes_of(catalog.state(*stream)), now_s)
            finally:
                one_is_done()

        found, errors = done_for_each(streams, opened, catalog.at_once)
    by_table: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, sizes in found:
        by_table[name].append(sizes)
    for name, row in rows.items():
        if "error" not in row:
            row["sizes"] = added(by_table[name])
    for (name, _), error in errors:
        row = rows[name]
        row["failed_partitions"] = row.get("failed_partitions", 0) + 1
        row["first_error"] = row.get("first_error", error_document(error))
    return errors


_COLUMNS = (
    "partitions",
    *SIZE_COLUMNS,
    "table",
    "partition keys",
    "primary keys",
    "sort keys",
    "destination of",
)
_NUMBERS = _COLUMNS.index("table")


def print_catalog(out: Console, where: str, tables: list[dict[str, Any]]) -> None:
    """A line for each table of the catalog at `where`. A column without any value is left out."""
    if not tables:
        out.print(f"no tables in {where}")
    rows = [_COLUMNS, *(_catalog_cells(table) for table in tables if "error" not in table)]
    kept = [n for n, name in enumerate(_COLUMNS) if name == "table" or any(row[n] != "-" for row in rows[1:])]
    cells = [[row[n] for n in kept] for row in rows]
    for line in in_columns(cells, right=sum(n < _NUMBERS for n in kept)) if len(rows) > 1 else ():
        out.print(line)
    for table in tables:
        if "error" in table:
            out.print(f"{table['table']}: failed: {table['error']['message']}", style="red")
        if "failed_partitions" in table:
            failed = counted(table["failed_partitions"], "partition")
            out.print(f"{table['table']}: {failed} failed: {table['first_error']['message']}", style="red")


def catalog_as_html(caption: str, tables: list[dict[str, Any]]) -> str:
    """The tables, the ten of many whose readers fold most rows, in the columns in which `show` lists them."""
    rows = [(*sizes_or_failed(table), table["table"]) for table in Detail().chosen(tables, badness)]
    return html_table(f"{caption}: {counted(len(tables), 'table')}", (*SIZE_COLUMNS, "table"), rows)


def _catalog_cells(table: dict[str, Any]) -> tuple[str, ...]:
    sizes = table.get("sizes")
    return (
        f"{table['partitions']:,}",
        *(size_cells(sizes) if sizes else ("-",) * len(SIZE_COLUMNS)),
        table["table"],
        ", ".join(table["partition_keys"]) or "-",
        ", ".join(table["primary_keys"] or ["(not declared)"]),
        ", ".join(table["sort_keys"] or []) or "-",
        table["destination_of"] or "-",
    )
