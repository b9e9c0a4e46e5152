"""plan and compact for tables of Iceberg catalogs: the options that they have, and what they print.

deltacompact plan    iceberg://prod db.orders --out plan.json
deltacompact compact iceberg://prod db.orders --option delete-file-threshold=1
deltacompact compact iceberg://prod db.orders --from-plan plan.json
deltacompact compact iceberg://prod db.orders --mode convert
deltacompact compact iceberg://prod db.orders --mode upsert --option key-columns=id
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from deltacompact.base.errors import InputError
from deltacompact.base.settings import Settings
from deltacompact.base.wording import counted
from deltacompact.cli import iceberg_convert, iceberg_upsert
from deltacompact.cli.answers import answer

if TYPE_CHECKING:
    from deltacompact.catalog.iceberg.catalog import IcebergCatalog
    from deltacompact.catalog.iceberg.rewrite.plan import RewritePlan
    from deltacompact.catalog.iceberg.rewrite.rewrite import RewriteResult

REWRITE, CONVERT, UPSERT = "rewrite", "convert", "upsert"
MODES = (REWRITE, CONVERT, UPSERT)
_OURS = ("mode", "branch", "option", "out", "from_plan")
_SHARED = ("catalog", "table", "as_json")


def iceberg_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that plan and compact have for Iceberg tables."""
    options = (
        click.option(
            "--mode",
            type=click.Choice(MODES),
            help="Iceberg: write files anew, with all deletes applied (default), convert equality deletes, or upsert: "
            "mark all rows as dead but the newest of each key.",
        ),
        click.option("--branch", metavar="NAME", help="Iceberg: the branch; default: main."),
        click.option("--option", multiple=True, metavar="KEY=VALUE", help="Iceberg: an option of the mode."),
    )
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


def refuse_iceberg_options() -> None:
    """Refuse options of Iceberg tables for a delta stream."""
    if given := [name for name in _given() if name in _OURS]:
        raise InputError(f"{_flag(given[0])} is for tables of Iceberg catalogs (iceberg://NAME)")


def print_plan(catalog: IcebergCatalog, table: str, options: dict[str, Any]) -> None:
    """The plan as text, as JSON, or into a file."""
    from deltacompact.catalog.iceberg.rewrite.plan_document import plan_document, plan_to_json

    _refuse_others()
    if options["mode"] == CONVERT:
        return _print_conversion_plan(catalog, table, options)
    if options["mode"] == UPSERT:
        return _print_upsert_plan(catalog, table, options)
    found = catalog.plan(table, _chosen(options["option"]), options["branch"] or "main")
    if options["out"]:
        _write(Path(options["out"]), plan_to_json(found))
    answer(options["as_json"], plan_document(found), *_plan_lines(found))


def run(catalog: IcebergCatalog, table: str, options: dict[str, Any]) -> None:
    """Carry out the mode, and print what was done."""
    _refuse_others()
    if (path := options["from_plan"]) and options["option"]:
        raise InputError("--option and --from-plan: a plan has its own options")
    plan = _read(Path(path)) if path else None
    options = options | {"mode": options["mode"] or _mode_of(plan)}
    chosen = {field.name: options[field.name] for field in dataclasses.fields(Settings) if field.name in options}
    settings = Settings(limits=click.get_current_context().obj, **chosen)
    branch = options["branch"] or "main"
    if options["mode"] == CONVERT:
        converted = catalog.convert(table, _chosen(options["option"]), branch, settings, plan)
        return answer(options["as_json"], dataclasses.asdict(converted), *iceberg_convert.result_lines(converted))
    if options["mode"] == UPSERT:
        upserted = catalog.upsert(table, _chosen(options["option"]), branch, settings, plan)
        return answer(options["as_json"], dataclasses.asdict(upserted), *iceberg_upsert.result_lines(upserted))
    result = catalog.rewrite(table, _chosen(options["option"]), branch, settings, plan)
    answer(options["as_json"], dataclasses.asdict(result), *_result_lines(result))


def _print_conversion_plan(catalog: IcebergCatalog, table: str, options: dict[str, Any]) -> None:
    from deltacompact.catalog.iceberg.convert.plan_document import plan_document, plan_to_json

    found = catalog.plan_conversion(table, _chosen(options["option"]), options["branch"] or "main")
    if options["out"]:
        _write(Path(options["out"]), plan_to_json(found))
    answer(options["as_json"], plan_document(found), *iceberg_convert.plan_lines(found))


def _print_upsert_plan(catalog: IcebergCatalog, table: str, options: dict[str, Any]) -> None:
    from deltacompact.catalog.iceberg.upsert.plan_document import plan_document, plan_to_json

    found = catalog.plan_upsert(table, _chosen(options["option"]), options["branch"] or "main")
    if options["out"]:
        _write(Path(options["out"]), plan_to_json(found))
    answer(options["as_json"], plan_document(found), *iceberg_upsert.plan_lines(found))


def _mode_of(plan: bytes | None) -> str:
    """The mode that a plan is of. Where that is unclear, `rewrite` says what is wrong with it."""
    try:
        kind = json.loads(plan or b"{}")["kind"]
    except (ValueError, KeyError, TypeError):
        return REWRITE
    return next((mode for mode in MODES if kind == f"iceberg {mode} plan"), REWRITE)


def _given() -> list[str]:
    """The parameters that the command line names."""
    context = click.get_current_context()
    return [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]


def _refuse_others() -> None:
    settings = {field.name for field in dataclasses.fields(Settings)} - {"rows_per_round", "rewrite_dead_fraction"}
    for name in _given():
        if name not in (*_OURS, *_SHARED) and name not in settings:
            raise InputError(f"{_flag(name)} is for delta streams: a table of an Iceberg catalog has --option")


def _flag(name: str) -> str:
    parameters = click.get_current_context().command.params
    return next(parameter.opts[0] for parameter in parameters if parameter.name == name)


def _chosen(options: Sequence[str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InputError(f"--option {text!r}: write KEY=VALUE")
        if name in chosen:
            raise InputError(f"--option {name} is given twice")
        chosen[name] = value
    return chosen


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def _plan_lines(plan: RewritePlan) -> list[str]:
    if plan.nothing_to_do:
        return [f"nothing to do: {plan.nothing_to_do}"]
    lines = []
    for group in plan.groups:
        reasons = [source.reason.value.replace("_", " ") for source in group.inputs]
        why = ", ".join(f"{reasons.count(reason)} {reason}" for reason in dict.fromkeys(reasons))
        where = f"partition {group.partition}: " if group.partition else ""
        size = f"{group.bytes:,} bytes, {counted(group.rows, 'row')}"
        into = counted(group.output_files, "file")
        lines.append(f"{where}{counted(len(group.inputs), 'file')} ({why}), {size} -> {into}")
    stay = [f"stay: {counted(count, 'file')}, {reason.value.replace('_', ' ')}" for reason, count in plan.stays]
    return [*lines, *stay]


def _result_lines(result: RewriteResult) -> list[str]:
    if result.nothing_to_do:
        return [f"nothing to do: {result.nothing_to_do}"]
    snapshots = ", ".join(str(number) for number in result.snapshots)
    files = f"{counted(result.files_in, 'file')} -> {counted(result.files_out, 'file')}"
    dead = f"{result.dead_by_position:,} deleted by position + {result.dead_by_key:,} deleted by key"
    removed = counted(result.delete_files_removed, "delete file")
    return [
        f"{files}, {result.bytes_in:,} -> {result.bytes_out:,} bytes, snapshot {snapshots}",
        f"{counted(result.rows_in, 'row')} = {result.rows_out:,} live + {dead}; {removed} removed",
        *(f"not rewritten: {line}" for line in result.refused),
    ]
