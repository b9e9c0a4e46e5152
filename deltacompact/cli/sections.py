"""Commands for both kinds of tables: their help lists the options of each kind apart.

Options:                                        those of both
Options for delta streams:                      delta_stream_option(…)
Options for Iceberg tables (iceberg://NAME):    iceberg_option(…)
"""

from __future__ import annotations

import functools

import click


class WithSections(click.Command):
    """Lists the options without a section first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(option, "section", "Options"), []).append(record)
        for title, records in sections.items():
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
