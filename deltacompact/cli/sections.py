"""Commands for both kinds of tables. Their help lists the options of each kind separately.

Options:                                        those of both
Options for delta streams:                      delta_stream_option(…)
Options for Iceberg tables (iceberg://NAME):    iceberg_option(…)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from deltacompact.base.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog

Records = Sequence[tuple[str, str]]
"""(name, text) of each option."""
_INSTEAD = {
    "--partition": "--where",
    "--primary-key": "--option key-columns=NAME",
    "--sort-key": "--option sort-columns=NAME",
    "--target-file-bytes": "--option target-file-size-bytes=N",
}
"""The options of Iceberg tables that correspond to options of delta streams."""


class WithSections(click.Command):
    """Lists the options without a section first, then the sections, then those of `says`, by title."""

    def __init__(self, *args: Any, says: Callable[[], Mapping[str, Records]] = dict, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._says = says

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(option, "section", "Options"), []).append(record)
        for title, records in {**sections, **self._says()}.items():
            with formatter.section(title):
                formatter.write_dl(records)


class DeltaStreamOption(click.Option):
    """An option that tables of Iceberg catalogs do not have."""

    section = "Options for delta streams"


class HealthOption(click.Option):
    """A threshold of `check --health`."""

    section = "Options for --health"


class IcebergOption(click.Option):
    """An option that delta streams do not have."""

    section = "Options for Iceberg tables (iceberg://NAME)"


delta_stream_option = functools.partial(click.option, cls=DeltaStreamOption)
health_option = functools.partial(click.option, cls=HealthOption)
iceberg_option = functools.partial(click.option, cls=IcebergOption)


def refuse_health_options() -> None:
    """Refuse thresholds without --health."""
    for flag in _given(HealthOption):
        raise InputError(f"{flag} is for check --health")


def refuse(flags: Collection[str], why: str) -> None:
    """Refuse these options, which this call would leave unheard."""
    for flag in _given():
        if flag in flags:
            raise click.UsageError(f"{flag} {why}")


def hears_only(option: str, heard: Collection[str], why: str) -> None:
    """Refuse all options but these, because `option` would leave them unheard."""
    for other in _given():
        if other not in (option, "--json", *heard):
            raise InputError(f"{option} excludes {other}: {why}")


def of_iceberg(catalog: DeltaStreamCatalog | IcebergCatalog) -> TypeIs[IcebergCatalog]:
    """Whether the catalog is one of Iceberg tables. Raises InputError for an option of the other kind of tables."""
    from deltacompact.catalog.opening import is_iceberg_catalog

    if is_iceberg_catalog(catalog):
        _refuse_delta_stream_options()
        return True
    for flag in _given(IcebergOption):
        raise InputError(f"{flag} is for tables of Iceberg catalogs (iceberg://NAME)")
    return False


def _refuse_delta_stream_options() -> None:
    for flag in _given(DeltaStreamOption):
        instead = _INSTEAD.get(flag, "")
        known = [name for parameter in click.get_current_context().command.params for name in parameter.opts]
        advice = f": for an Iceberg table, give {instead}" if instead.partition(" ")[0] in known else ""
        raise InputError(f"{flag} is for delta streams{advice}")


def _given(kind: type[click.Option] = click.Option) -> list[str]:
    """The options of this kind that the command line names."""
    context = click.get_current_context()
    options = [parameter for parameter in context.command.params if isinstance(parameter, kind)]
    return [
        option.secondary_opts[0] if option.secondary_opts and not context.params[option.name or ""] else option.opts[0]
        for option in options
        if context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
    ]
