"""show, plan, compact and maintain for tables of Iceberg catalogs: their options, and what they print.

deltacompact show     iceberg://prod db.orders
deltacompact plan     iceberg://prod db.orders --out plan.json
deltacompact compact  iceberg://prod db.orders --option delete-file-threshold=1
deltacompact compact  iceberg://prod db.orders --from-plan plan.json
deltacompact compact  iceberg://prod db.orders --cluster-by "day*3,customer" --option rewrite-all=true
deltacompact compact  iceberg://prod db.orders --mode convert
deltacompact compact  iceberg://prod db.orders --mode upsert --option key-columns=id
deltacompact maintain iceberg://prod db.orders --expire-snapshots --rewrite-manifests --remove-orphans --dry-run
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import InputError
from deltacompact.base.settings import Settings
from deltacompact.base.wording import counted, size
from deltacompact.cli.answers import Failed, answer
from deltacompact.cli.arguments import all_of, iceberg_catalog_argument, json_option, table_argument
from deltacompact.cli.detail import detail_of
from deltacompact.cli.iceberg_options import option_sections
from deltacompact.cli.sections import WithSections, iceberg_option
from deltacompact.iceberg_modes import modes
from deltacompact.iceberg_modes.modes import MAINTAIN, mode_named

if TYPE_CHECKING:
    from deltacompact.catalog.iceberg import IcebergCatalog
    from deltacompact.iceberg.deletes.matching import FileScanTask


iceberg_options = all_of(
    iceberg_option(
        "--mode",
        type=click.Choice(modes.names()),
        help=" ".join(f"{mode.name}: {mode.text}." for mode in modes.MODES) + f" Default: {modes.MODES[0].name}.",
    ),
    iceberg_option("--branch", metavar="NAME", help="The branch. Default: main."),
    iceberg_option(
        "--where",
        metavar="EXPR",
        help="Only files that may have rows for which it is true: \"day = '2026-11-22' and id > 7\".",
    ),
    iceberg_option(
        "--option",
        multiple=True,
        metavar="KEY=VALUE",
        help="An option of the mode, such as delete-file-threshold=1; repeatable. They are listed below.",
    ),
)
"""The options that plan and compact have for Iceberg tables."""


def show(catalog: IcebergCatalog, table: str | None, options: dict[str, Any]) -> None:
    """Print the tables of a catalog; or the contents of a branch of a table, its snapshots, its files."""
    from deltacompact.reports import iceberg_table

    branch, as_json = options["branch"], options["as_json"]
    if table is None:
        return _show_tables(catalog, as_json)
    if options["snapshots"]:
        found = iceberg_table.snapshots(catalog.state(table, branch))
        shown = found if options["verbose"] else found[: iceberg_table.SNAPSHOTS_SHOWN]
        return answer(as_json, found, *iceberg_table.snapshot_lines(shown, len(found)))
    loaded, state = catalog.seen(table, branch)
    contents = iceberg_table.branch_contents(state)
    document, lines = dataclasses.asdict(contents), iceberg_table.lines(contents)
    price = options["usd_per_core_hour"]
    expected, said = iceberg_table.expected(lambda: catalog.foreseen(loaded, state, _settings(options)), price)
    document, lines = document | {"expected": expected}, [*lines, said]
    if options["files"]:
        files = iceberg_table.files(state)
        document, lines = document | {"files": files}, [*lines, *iceberg_table.file_lines(files)]
    answer(as_json, document, *lines)


def _show_tables(catalog: IcebergCatalog, as_json: bool) -> None:
    """Print the tables of the catalog. Raises Failed for the first table that cannot be loaded."""
    from deltacompact.cli.counting import opening
    from deltacompact.reports import iceberg_catalog

    shown = iceberg_catalog.tables_document(catalog.name, catalog.tables(), catalog.metadata, catalog.at_once, opening)
    answer(as_json, shown.document, *iceberg_catalog.lines(catalog.name, shown.document))
    if shown.errors:
        raise Failed(shown.errors[0])


def print_plan(catalog: IcebergCatalog, table: str, options: dict[str, Any]) -> None:
    """The plan as text, as JSON, or into a file."""
    from deltacompact.iceberg_modes.totals import totals_line
    from deltacompact.reports.plots import draw_branch_plan

    mode, detail = mode_named(options["mode"]), detail_of(options)
    found, before, after = catalog.planned_with_totals(mode, table, _chosen(options), options["branch"] or "main")
    document = mode.steps().document(found)
    lines = found.lines(None) if detail.verbose else found.lines()
    if options["out"]:
        _write(Path(options["out"]), json.dumps(document, indent=1))
    price = options["usd_per_core_hour"]
    foreseen = catalog.expected(found, _settings(options))
    document |= {"expected": foreseen.document(price)}
    document |= {"before": dataclasses.asdict(before), "after": dataclasses.asdict(after)}
    if found.nothing_to_do:
        lines = [str(found)]
    else:
        lines += [totals_line(before, after), f"expected: {foreseen.words(price)}"]
        lines += _input_lines(detail.chosen(found.groups, lambda group: group.bytes)) if detail.files else []
    draw_branch_plan(options["plot"], table, before, after)
    answer(options["as_json"], document, *lines)


def run(catalog: IcebergCatalog, table: str, options: dict[str, Any]) -> None:
    """Carry out the mode, and print what was done."""
    from deltacompact.base.events import fan_out
    from deltacompact.cli.progress import progress_unless

    for name in ("option", "where", "cluster_by"):
        if options["from_plan"] and options[name]:
            raise InputError(f"--{name.replace('_', '-')} and --from-plan: a plan has its own options")
    plan = _plan_at(Path(options["from_plan"])) if options["from_plan"] else None
    branch, settings, planned = options["branch"] or "main", _settings(options), _mode_of(plan)
    if options["mode"] and planned not in (None, options["mode"]):
        raise InputError(f"{options['from_plan']} is a plan of --mode {planned}, not {options['mode']}")
    mode = mode_named(planned or options["mode"])
    began = time.perf_counter()
    with progress_unless(options["as_json"]) as sink:
        result = catalog.run(mode, table, _chosen(options), branch, settings, plan, fan_out([sink]))
    document, lines = dataclasses.asdict(result), str(result).splitlines()
    if options["files"]:
        from deltacompact.reports.iceberg_table import changed_files, changed_lines

        files = changed_files(catalog.changes(table, result.snapshots))
        document, lines = document | {"changed_files": files}, [*lines, *changed_lines(files)]
    if result.nothing_to_do is None:
        rows = f"{counted(result.rows_read, 'row')}, " if result.rows_read else ""
        lines.append(f"Done: {rows}{time.perf_counter() - began:,.1f} s")
    answer(options["as_json"], document, *lines)


def _mode_of(plan: bytes | None) -> str | None:
    """The mode of a plan. None: there is no plan, or it is not one."""
    try:
        kind = json.loads(plan or b"{}")["kind"]
    except (ValueError, KeyError, TypeError):
        return None
    return next((name for name in modes.names() if kind == f"iceberg {name} plan"), None)


@click.command(cls=WithSections, says=lambda: option_sections([MAINTAIN]))
@iceberg_catalog_argument
@table_argument
@click.option("--expire-snapshots", is_flag=True, help="Expire snapshots, and delete what only they reached.")
@click.option("--rewrite-manifests", is_flag=True, help="Merge manifests into few, sorted by partition.")
@click.option("--remove-orphans", is_flag=True, help="Delete files below the location that nothing reaches.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and write nothing.")
@click.option(
    "--branch", metavar="NAME", default="main", show_default=True, help="The branch whose manifests are rewritten."
)
@click.option(
    "--option",
    multiple=True,
    metavar="KEY=VALUE",
    help="older-than=7d, retain-last=10, location=URI and others; repeatable. They are listed below.",
)
@json_option
def maintain(
    catalog: IcebergCatalog,
    table: str,
    expire_snapshots: bool,
    rewrite_manifests: bool,
    remove_orphans: bool,
    dry_run: bool,
    branch: str,
    option: Sequence[str],
    as_json: bool,
) -> None:
    """Keep an Iceberg table's metadata and folder small.

    It expires snapshots, rewrites manifests and removes orphans, in this order. Name at least one of the three.

    \b
    deltacompact maintain iceberg://prod db.orders --expire-snapshots --rewrite-manifests
    deltacompact maintain iceberg://prod db.orders --remove-orphans --option older-than=7d --dry-run
    """
    from deltacompact.cli.console import err

    def say(line: str) -> None:
        err.print(line, style="dim", highlight=False, soft_wrap=True)

    if not (expire_snapshots or rewrite_manifests or remove_orphans):
        raise InputError("say what to do: --expire-snapshots, --rewrite-manifests, --remove-orphans or several of them")
    result = catalog.maintain(
        table,
        expire_snapshots=expire_snapshots,
        rewrite_manifests=rewrite_manifests,
        remove_orphans=remove_orphans,
        dry_run=dry_run,
        branch=branch,
        options=_chosen({"where": None, "option": option}),
        say=say,
    )
    answer(as_json, dataclasses.asdict(result), str(result))


def _settings(options: dict[str, Any]) -> Settings:
    chosen = {field.name: options[field.name] for field in dataclasses.fields(Settings) if field.name in options}
    return Settings(limits=click.get_current_context().obj, **chosen)


def _chosen(options: dict[str, Any]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for field, name in (("where", "where"), ("cluster_by", "cluster-by")):
        if options.get(field) is not None:
            chosen[name] = options[field]
    for text in options["option"]:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InputError(f"--option {text!r}: write KEY=VALUE")
        if name in chosen:
            raise InputError(f"--option {name} is given twice")
        chosen[name] = value
    return chosen


def _plan_at(path: Path) -> bytes:
    """The plan in a file. Raises InputError for a file that is not a plan of some mode."""
    try:
        plan = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if _mode_of(plan) is None:
        raise InputError(f"{path} is not a plan that `plan iceberg://… --out` wrote")
    return plan


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def _input_lines(groups: Iterable[Any]) -> list[str]:
    """The data files that are read, group by group."""
    return [_input_line(source) for group in groups for source in group.inputs]


def _input_line(source: FileScanTask) -> str:
    file, deletes = source.entry.file, len(source.deletes)
    may_apply = f", {counted(deletes, 'delete file')} may apply" if deletes else ""
    return f"  {file.path}  {counted(file.rows, 'row')}, {size(file.file_bytes)}{may_apply}"
