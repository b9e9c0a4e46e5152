"""Arguments that several commands share, and the parsing of their text."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from deltacompact.base.errors import InputError
from deltacompact.base.model import CATALOG_VARIABLE, ICEBERG
from deltacompact.cli.finite_range import FiniteRange

if TYPE_CHECKING:
    from deltacompact.base.model import Partition
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog

_FOR_ICEBERG = {
    "append": "whoever writes the table appends to it, such as PyIceberg",
    "create": "PyIceberg and others create its tables",
    "drop": "PyIceberg and others drop its tables",
    "publish": "engines read its tables as they are, check --readable-by says which",
    "retract": "rollback goes back to an older snapshot",
    "vacuum": "maintain --expire-snapshots --remove-orphans deletes what nothing needs any more",
}
"""For commands of delta streams: what does the same for an Iceberg table."""


def in_environment(value: str) -> str:
    """The name of the catalog. "-" stands for the catalog in the environment."""
    if value != "-":
        return value
    if not (named := os.environ.get(CATALOG_VARIABLE)):
        raise InputError(f"CATALOG is -, the catalog at ${CATALOG_VARIABLE}, which is not set")
    return named


def catalog_at(_: click.Context, __: click.Parameter, value: str) -> DeltaStreamCatalog:
    from deltacompact.catalog.delta_streams import open_catalog

    value = in_environment(value)
    if not value:
        raise InputError("CATALOG is empty: name a folder, file:///path or s3://bucket/prefix")
    if value.startswith(ICEBERG):
        context = click.get_current_context()
        *others, last = takers_of_iceberg(context.find_root())
        instead = _FOR_ICEBERG.get(context.command.name or "", f"{', '.join(others)} and {last} take one")
        raise InputError(f"{context.command.name} does not take the Iceberg catalog {value}: {instead}")
    if os.path.isfile(value):
        raise InputError(f"CATALOG {value} is a file: name a folder, file:///path or s3://bucket/prefix")
    return open_catalog(value)


def any_catalog_at(
    context: click.Context, parameter: click.Parameter, value: str
) -> DeltaStreamCatalog | IcebergCatalog:
    """A catalog of delta streams or an Iceberg catalog."""
    value = in_environment(value)
    if not value.startswith(ICEBERG):
        return catalog_at(context, parameter, value)
    return _opened(value)


def takers_of_iceberg(root: click.Context) -> list[str]:
    """The commands of a program that take an Iceberg catalog, or whose own commands do."""
    assert isinstance(root.command, click.Group)
    named = ((name, root.command.get_command(root, name)) for name in root.command.list_commands(root))
    return [name for name, command in named if command is not None and _takes_iceberg(command)]


def _takes_iceberg(command: click.Command) -> bool:
    if isinstance(command, click.Group):
        return any(map(_takes_iceberg, command.commands.values()))
    return any(parameter.callback in (any_catalog_at, iceberg_catalog_at) for parameter in command.params)


def iceberg_catalog_at(_: click.Context, __: click.Parameter, value: str) -> IcebergCatalog:
    value = in_environment(value)
    if not value.startswith(ICEBERG):
        command = click.get_current_context().command.name
        instead = ": run vacuum there" if command == "maintain" else ""
        raise InputError(f"{command} takes an Iceberg catalog (iceberg://NAME), not {value}{instead}")
    return _opened(value)


def _opened(uri: str) -> IcebergCatalog:
    """Open an Iceberg catalog without garbage collection. PyIceberg, pydantic and SQLAlchemy make half a million
    objects that stay: to search them for garbage would take a fifth of the CPU of `show`."""
    collects = gc.isenabled()
    gc.disable()
    try:
        from deltacompact.catalog.iceberg import IcebergCatalog

        return IcebergCatalog.at(uri)
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def _folders(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    return [CompletionItem(begun, type="dir")]


def complete_tables(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """The tables of a catalog on this machine. For other catalogs none: completion must not wait for a network."""
    catalog = context.params.get("catalog")
    names = catalog.tables() if catalog is not None and not getattr(catalog, "is_remote", True) else []
    return [CompletionItem(name) for name in names if name.startswith(begun)]


catalog_argument = click.argument("catalog", callback=catalog_at, shell_complete=_folders)
iceberg_catalog_argument = click.argument("catalog", callback=iceberg_catalog_at)
any_catalog_argument = click.argument(  # from the environment where no argument is given at all: a bare `show`
    "catalog", callback=any_catalog_at, shell_complete=_folders, envvar=CATALOG_VARIABLE
)
table_argument = click.argument("table", shell_complete=complete_tables)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
PARTITION_HELP = "Value of a partition key; once for each key. A bare NAME stands for null."
partition_option = click.option("--partition", multiple=True, metavar="NAME=VALUE", help=PARTITION_HELP)
as_of_option = click.option(
    "--as-of",
    "--version",
    "as_of",
    metavar="VERSION|TIME",
    help="The rows that lived then: an older version or snapshot (see history), or a time. Default: now.",
)


where_option = click.option(
    "--where", metavar="EXPR", help="Only rows for which it is true: \"day = '2026-11-22' and id > 7\"."
)


def all_of(*options: Callable[..., Any]) -> Callable[..., Any]:
    """One decorator of several, which stand in this order in the help."""
    return lambda command: functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


def price_option(help_: str) -> Callable[[Any], Any]:
    return click.option("--usd-per-core-hour", type=FiniteRange(min=0), metavar="USD", help=help_)


def schema_mode_option(help_: str) -> Callable[[Any], Any]:
    return click.option("--schema-mode", type=click.Choice(["merge", "fixed"]), help=help_)


def pairs(options: Sequence[str]) -> dict[str, str | None]:
    """The values of one partition."""
    values: dict[str, str | None] = {}
    for text in options:
        name, value = _pair(text)
        if name in values:
            raise InputError(f"--partition {name} is given twice")
        values[name] = value
    return values


def partition_list(options: Sequence[str]) -> list[dict[str, str | None]] | None:
    """The values of several partitions: a repeated name begins the next partition."""
    partitions: list[dict[str, str | None]] = []
    for text in options:
        name, value = _pair(text)
        if not partitions or name in partitions[-1]:
            partitions.append({})
        partitions[-1][name] = value
    return partitions or None


def _pair(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise InputError(f"--partition {text!r} names no partition key: write NAME=VALUE")
    return name, value if equals else None


def sort_keys_of(options: Sequence[str]) -> list[str | tuple[str, str]]:
    """Parse "updated" and "updated:descending". For a column with a colon in its name, write the direction, too."""
    keys = list[str | tuple[str, str]]()
    for text in options:
        name, colon, direction = text.rpartition(":")
        if colon and direction.lower() in ("ascending", "descending"):
            keys.append((name, direction))
        elif colon and name:
            raise InputError(f"--sort-key {text}: {direction!r} is neither 'ascending' nor 'descending'")
        else:
            keys.append(text)
    return keys


def one_partition(catalog: DeltaStreamCatalog, table: str, options: Sequence[str]) -> Partition | None:
    """The named partition. None: none is named."""
    return catalog.partition(table, pairs(options)) if options else None
