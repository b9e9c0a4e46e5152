"""Commands for both kinds of tables: their help lists the options of each kind apart.

Options:                                        those of both
Options for delta streams:                      delta_stream_option(…)
Options for Iceberg tables (iceberg://NAME):    iceberg_option(…)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

Records = Sequence[tuple[str, str]]
"""Names, and what is said of each."""


class WithSections(click.Command):
    """Lists the options without a section first, and behind all options what `says` gives by title."""

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


class IcebergOption(click.Option):
    """An option that delta streams do not have."""

    section = "Options for Iceberg tables (iceberg://NAME)"


delta_stream_option = functools.partial(click.option, cls=DeltaStreamOption)
iceberg_option = functools.partial(click.option, cls=IcebergOption)
