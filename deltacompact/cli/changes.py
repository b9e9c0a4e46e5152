"""changes and diff: which rows came, went and changed between two versions or snapshots."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.base.wording import counted, text_of
from deltacompact.cli.answers import answer, note
from deltacompact.cli.arguments import any_catalog_argument, json_option, pairs, table_argument, where_option
from deltacompact.cli.byte_size import BOUND
from deltacompact.cli.place import place_of, place_options
from deltacompact.cli.printed_rows import print_rows
from deltacompact.cli.sections import WithSections, hears_only

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog

_OF_MIRRORS = ["--bookmark", "--from", "--to", "--net", "--where", "--columns", "--memory", "--partition", "--branch"]
_key_option = click.option(
    "--key",
    multiple=True,
    metavar="NAME",
    help="A column that identifies a row; repeatable. Default: the primary key, or the identifier fields.",
)


@click.command(cls=WithSections)
@any_catalog_argument
@table_argument
@click.option(
    "--from",
    "from_",
    metavar="VERSION|SNAPSHOT|TIME|BOOKMARK",
    help="Changes after it: a version as it was when it was sealed, a snapshot, a time, or what a bookmark has done. "
    "Default: all rows.",
)
@click.option("--to", metavar="VERSION|SNAPSHOT|TIME", help="Changes up to it, included. Default: now.")
@click.option(
    "--net/--per-commit", default=True, help="One change for each row (default), or the changes of each commit."
)
@click.option("--before", is_flag=True, help="For updates, print the row before the change, too.")
@where_option
@click.option("--columns", metavar="NAME,NAME", help="Only these columns, and changes in them.")
@_key_option
@click.option(
    "--bookmark",
    metavar="NAME",
    help="Changes since this consumer's last --commit; the same batch until the next. --from says where it begins. "
    "Each consumer needs its own name: if two share one, one commits changes that the other has not done.",
)
@click.option(
    "--commit",
    is_flag=True,
    help="Say that the bookmark's batch is done, and print no rows. Where no batch is open, nothing changes.",
)
@click.option(
    "--into",
    nargs=2,
    metavar="CATALOG TABLE",
    help="Append the bookmark's batch to a table of either kind, once, and commit the bookmark: a mirror. "
    "Each time with the same --columns and --where.",
)
@click.option(
    "--out",
    metavar="FILE|DIR/",
    help="Write the changes to a file (.parquet, .feather, .orc or .csv), or to Parquet files in a folder.",
)
@click.option(
    "--memory",
    "memory_bytes",
    **BOUND,
    help="What this process may take in all, 300MB or 2GiB. Default: no bound; it holds about 512 MiB of changes.",
)
@json_option
@place_options
def changes(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    from_: str | None,
    to: str | None,
    net: bool,
    before: bool,
    where: str | None,
    columns: str | None,
    key: tuple[str, ...],
    bookmark: str | None,
    commit: bool,
    into: tuple[str, str] | None,
    out: str | None,
    memory_bytes: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the rows that came, went and changed.

    One JSON object a line: the row, and _change_type (insert, delete, update_before, update_after), _change_ordinal,
    _commit_snapshot_id and _commit_timestamp. All kinds of deletes of an Iceberg table are resolved, and deltas count
    that are not compacted yet. Files that both ends have are not opened, unless rows of them came or went.

    \b
    deltacompact changes ./lake orders --from 3
    deltacompact changes iceberg://prod db.orders --from 2026-11-22 --per-commit --before
    """
    if commit:
        hears_only("--commit", ["--bookmark"], "it says that a batch is done, and reads none")
        if bookmark is None:
            raise InputError("--commit is for the batch of a --bookmark")
        done = catalog.table(table).commit_bookmark(bookmark)
        said = f"the batch of bookmark {bookmark} is done" if done else f"bookmark {bookmark} has no batch to commit"
        return answer(as_json, {"table": table, "bookmark": bookmark, "committed": done}, said)
    wanted = {
        "where": where,
        "columns": columns.split(",") if columns is not None else None,
        "memory_bytes": memory_bytes,
    }
    if into is not None:
        hears_only("--into", _OF_MIRRORS, "a mirror takes net changes by its own key")
        ends = {**place_of(catalog, options), "from_": from_, "to": to}
        return _mirror(catalog, table, into, bookmark, {**ends, **wanted}, as_json)
    chosen: dict[str, Any] = {**place_of(catalog, options), "bookmark": bookmark, **wanted}
    reader = catalog.table(table).changes(
        from_,
        to,
        **chosen,
        per_commit=not net,
        before=before,
        key=key or None,
    )
    if out is None:
        if not print_rows(reader, as_json) and not as_json:
            note(_why_nothing(catalog, table, None if bookmark or to else from_, options))
        return None
    rows = _written(reader, out)
    answer(as_json, {"table": table, "out": out, "rows": rows}, f"wrote {counted(rows, 'change')} to {out}")


def _why_nothing(
    catalog: DeltaStreamCatalog | IcebergCatalog, table: str, from_: str | None, options: dict[str, Any]
) -> str:
    from deltacompact.catalog.opening import is_iceberg_catalog
    from deltacompact.change_feed.stream_bookmarks import may_name_version

    if from_ and may_name_version(from_) and not is_iceberg_catalog(catalog):
        places = catalog.chosen(table, pairs(options["partition"]) or None)
        newest = [catalog.state(table, place).version for place in places]
        if any(from_ in (version, version.partition("-")[0]) for version in newest):
            return (
                f"nothing changed: version {from_} is the newest, so it is what the table is now. Give the version "
                "before it, or a time"
            )
    return "nothing changed"


def _mirror(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    into: tuple[str, str],
    bookmark: str | None,
    chosen: dict[str, Any],
    as_json: bool,
) -> None:
    from deltacompact.catalog.mirror import mirror
    from deltacompact.catalog.opening import open_catalog
    from deltacompact.cli.arguments import in_environment

    if bookmark is None:
        raise InputError("--into needs a --bookmark, which says what the mirror has")
    place, name = into
    try:
        target = open_catalog(in_environment(place)).table(name)
    except NotFoundError as error:
        raise NotFoundError(f"{text_of(error)}: create it first, with --primary-key") from error
    rows = mirror(catalog.table(table), target, bookmark, **chosen)
    document = {"table": table, "into": name, "bookmark": bookmark, "changes": rows}
    answer(as_json, document, f"{counted(rows, 'change')} of {table} in {name}")


def _written(reader: Any, out: str) -> int:
    import pyarrow as pa

    from deltacompact.storage.opening import open_store
    from deltacompact.tabular.export import exported

    return exported(open_store("."), out, reader.schema, (pa.Table.from_batches([batch]) for batch in reader))


class _ListOrDrop(click.Command):
    """Takes the verb `list` or `drop` before the catalog. A catalog in a folder of that name is ./list."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = next((place for place, word in enumerate(args) if word == "-" or not word.startswith("-")), 0)
        verb = args.pop(first) if args[first : first + 1] in (["list"], ["drop"]) else "list"
        ctx.params["verb"] = verb
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[list|drop]", *super().collect_usage_pieces(ctx)]


@click.command(cls=_ListOrDrop)
@any_catalog_argument
@table_argument
@click.argument("name", metavar="[NAME]", required=False)
@json_option
def bookmarks(
    catalog: DeltaStreamCatalog | IcebergCatalog, table: str, name: str | None, as_json: bool, verb: str
) -> None:
    """List how far each consumer of changes is, or forget a consumer.

    Once a bookmark is dropped, the table no longer keeps old files for it.

    \b
    deltacompact bookmarks list ./lake orders
    deltacompact bookmarks drop ./lake orders mirror
    """
    if (verb == "drop") is (name is None):
        raise InputError("say 'bookmarks list CATALOG TABLE' or 'bookmarks drop CATALOG TABLE NAME'")
    if name is not None:
        catalog.table(table).drop_bookmark(name)
        return answer(as_json, {"table": table, "dropped": name}, f"bookmark {name} is forgotten")
    known = catalog.table(table).bookmarks()
    found = [
        {"name": bookmark.name, "done": _end_as_json(bookmark.done), "next": _end_as_json(bookmark.next)}
        for bookmark in known
    ]
    lines = [
        f"{bookmark.name}: done {_end_in_words(bookmark.done)}; next {_end_in_words(bookmark.next)}"
        for bookmark in known
    ]
    answer(as_json, found, *lines or ["no bookmarks"])


def _end_in_words(end: Any) -> str:
    ends = end.items() if isinstance(end, dict) else ()
    known = ", ".join(f"{partition} version {position.version} entry {position.tail}" for partition, position in ends)
    return known or str(end or "nothing")


def _end_as_json(end: Any) -> Any:
    """A snapshot's id, or for each partition the version and the length of its log."""
    if not isinstance(end, dict):
        return end
    return {str(partition): f"{position.version}, {position.tail}" for partition, position in end.items()}


@click.command(cls=WithSections)
@any_catalog_argument
@table_argument
@click.argument("from_", metavar="A")
@click.argument("to", metavar="[B]", required=False)
@_key_option
@json_option
@place_options
def diff(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    from_: str,
    to: str | None,
    key: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Count the changes between two versions, snapshots or times.

    \b
    deltacompact diff ./lake orders 3 4
    deltacompact diff iceberg://prod db.orders 2026-11-21 2026-11-22
    """
    ends = place_of(catalog, options)
    found = catalog.table(table).diff(from_, to, **ends, key=key or None)
    answer(
        as_json,
        {"table": table, "from": from_, "to": to, **dataclasses.asdict(found)},
        f"{counted(found.inserts, 'insert')}, {counted(found.deletes, 'delete')}, {counted(found.updates, 'update')}; "
        f"files +{found.files_added:,} -{found.files_removed:,}",
    )
