"""Arguments that several commands have, and what their text means."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from deltacompact.catalog.delta_stream import DeltaStreamCatalog, open_catalog
from deltacompact.errors import InputError
from deltacompact.model import Partition

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def catalog_at(_: click.Context, __: click.Parameter, value: str) -> DeltaStreamCatalog:
    return open_catalog(value)


catalog_argument = click.argument("catalog", callback=catalog_at)
table_argument = click.argument("table")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
partition_option = click.option(
    "--partition",
    "partition",
    multiple=True,
    metavar="NAME=VALUE",
    help="Partition value; once for each partition key. A bare NAME is null.",
)


version_option = click.option("--version", metavar="VERSION", help="A retained version: its name or number. See show.")


def pairs(given: Sequence[str]) -> dict[str, str | None]:
    pairs: dict[str, str | None] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if name in pairs:
            raise InputError(f"--partition {name} is given twice")
        pairs[name] = value if equals else None
    return pairs


def partition_list(given: Sequence[str]) -> list[dict[str, str | None]] | None:
    """Partitions of several: a name that comes again begins the next one."""
    partitions: list[dict[str, str | None]] = []
    for text in given:
        name, equals, value = text.partition("=")
        if not partitions or name in partitions[-1]:
            partitions.append({})
        partitions[-1][name] = value if equals else None
    return partitions or None


def sort_keys_of(given: Sequence[str]) -> list[tuple[str, str]]:
    """ "updated" and "updated:descending"; a colon in a column's name stays where no direction follows it."""
    keys = []
    for text in given:
        name, colon, direction = text.rpartition(":")
        if colon and direction.lower() in ("ascending", "descending"):
            keys.append((name, direction))
        elif colon and name:
            raise InputError(f"--sort-key {text}: {direction!r} is neither 'ascending' nor 'descending'")
        else:
            keys.append((text, "ascending"))
    return keys


def say_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))


def one_partition(catalog: DeltaStreamCatalog, table: str, given: Sequence[str]) -> Partition | None:
    return catalog.partition(table, pairs(given)) if given else None
