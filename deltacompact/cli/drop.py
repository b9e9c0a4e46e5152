"""drop: asks for the table's name before it deletes anything.

$ deltacompact drop ./lake orders
orders: 3 streams, 120 objects, 1.2 GiB will be deleted for good. Its name, to go on: orders
orders: deleted 3 streams, 120 objects, 1.2 GiB
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted, size
from deltacompact.cli.answers import answer
from deltacompact.cli.arguments import catalog_argument, json_option, table_argument

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.maintenance.drop import DropResult

_PATHS_SHOWN = 3


@click.command()
@catalog_argument
@table_argument
@click.option("--yes", is_flag=True, help="Do not ask for the table's name.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@json_option
def drop(catalog: DeltaStreamCatalog, table: str, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete a table for good: its rows, its history, its name.

    Stop its writers, readers and compactions first. Files that were appended by reference stay, and so do foreign files
    in its folder. If a drop is interrupted, repeat it.

    \b
    deltacompact drop ./lake orders --dry-run
    """
    if not (yes or dry_run):
        _ask(catalog, table)
    result = catalog.drop_table(table, dry_run=dry_run)
    answer(as_json, _document(result, dry_run), *_lines(result, "would delete" if dry_run else "deleted"))


def _ask(catalog: DeltaStreamCatalog, table: str) -> None:
    """Raises InputError if there is no terminal to ask, or if the answer is not the table's name."""
    found = catalog.drop_table(table, dry_run=True)
    if not sys.stdin.isatty():
        raise InputError(f"drop deletes table {table!r} for good: add --yes (or --dry-run, to see what would go)")
    click.echo(f"{table}: {_amount(found)} will be deleted for good. ", nl=False, err=True)
    if click.prompt("Its name, to go on", err=True) != table:
        raise InputError(f"that is not its name: table {table!r} stays as it is")


def _lines(result: DropResult, verb: str) -> list[str]:
    lines = [f"{result.table_id}: {verb} {_amount(result)}"]
    if result.left:
        names = ", ".join(stat.path for stat in result.left[:_PATHS_SHOWN])
        more = f" and {len(result.left) - _PATHS_SHOWN:,} more" if len(result.left) > _PATHS_SHOWN else ""
        lines.append(f"  {counted(len(result.left), 'object')} of others left: {names}{more}")
    return lines


def _amount(result: DropResult) -> str:

    return f"{counted(result.streams, 'stream')}, {counted(result.objects, 'object')}, {size(result.bytes)}"


def _document(result: DropResult, dry_run: bool) -> dict[str, Any]:
    return {**dataclasses.asdict(result), "left": [stat.path for stat in result.left], "dry_run": dry_run}
