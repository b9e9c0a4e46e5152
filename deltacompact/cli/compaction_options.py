"""The options that plan and compact share: for the means of the work, its input, and the sizes of its results.

--executor ray --read-mb-per-s 200          of both kinds of tables
--partition day=1995-04-03                  of delta streams; iceberg.py has the options of Iceberg tables
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from deltacompact.base.options import declared
from deltacompact.base.settings import COUNT_MAX, DEFAULTS, EXECUTORS, HASH_BUCKETS_MAX, Options
from deltacompact.cli.arguments import all_of, any_catalog_argument, json_option, table_argument
from deltacompact.cli.byte_size import BOUND
from deltacompact.cli.detail import detail_options
from deltacompact.cli.finite_range import FiniteRange
from deltacompact.cli.sections import delta_stream_option

_DECLARED = declared(Options)
RATE = FiniteRange(min=0, min_open=True)
COUNT = click.IntRange(1, COUNT_MAX)


def field_option(
    flag: str, name: str = "", option: Callable[..., Any] = delta_stream_option, more: str = "", **shown: Any
) -> Callable[..., Any]:
    """An option for a field of Options, with the field's default and text. `name`: the field's, where it is not that of
    the flag. `more` follows the text."""
    name = name or flag.removeprefix("--").replace("-", "_")
    default, said = getattr(DEFAULTS, name), _DECLARED[name]
    text = f"{said.meaning[0].upper()}{said.meaning[1:]}." if default is not None else said.sentence
    help_ = f"{text} {more}".strip().replace("`", "")
    made: Callable[..., Any] = option(
        flag, name, default=default, show_default=default is not None, help=help_, **shown
    )
    return made


_of_both = functools.partial(field_option, option=click.option)

_MEANS = (
    _of_both("--executor", type=click.Choice(EXECUTORS)),
    _of_both("--ray-cpus", type=click.IntRange(min=1), metavar="N"),
    _of_both("--concurrent-tasks", type=click.IntRange(min=1), metavar="N"),
    _of_both("--memory", "memory_bytes", **BOUND),
    _of_both("--read-mb-per-s", type=RATE, metavar="MB"),
    _of_both("--write-mb-per-s", type=RATE, metavar="MB"),
    _of_both("--requests-per-s", type=RATE, metavar="N"),
    _of_both("--compression", metavar="CODEC"),
    _of_both(
        "--cluster-by",
        metavar="COLUMNS",
        more="Overlapping files are written anew. A table has columns by create --cluster-by, an Iceberg table by its "
        "property deltacompact.cluster-by.",
    ),
    _of_both("--certify", is_flag=True),
)
"""The means of the work, for tables of both kinds."""

_WHAT = (
    delta_stream_option(
        "--primary-key",
        multiple=True,
        metavar="NAME",
        help="Primary key column; repeat for a composite key. Needed if the table declares none.",
    ),
    delta_stream_option(
        "--sort-key",
        multiple=True,
        metavar="NAME[:descending]",
        help="Of two rows of a key, the one with the greater value is kept; repeat in order. Default: the table's.",
    ),
    delta_stream_option("--destination", metavar="TABLE", help="Write to another table. Default: in place."),
    delta_stream_option(
        "--partition",
        "partition",
        multiple=True,
        metavar="NAME=VALUE",
        help="Only this partition; a repeated NAME begins another one. Default: all partitions.",
    ),
    field_option("--partitions-at-once", type=click.IntRange(min=1), metavar="N"),
)
"""The input of a compaction of delta streams, and its destination."""

_SIZES = (
    field_option("--hash-buckets", "hash_bucket_count", type=click.IntRange(1, HASH_BUCKETS_MAX), metavar="N"),
    field_option("--rows-per-round", type=COUNT, metavar="N"),
    field_option("--rows-per-file", "rows_per_compacted_file", type=COUNT, metavar="N"),
    field_option("--target-file-bytes", type=COUNT, metavar="N"),
    field_option("--rewrite-dead-fraction", type=FiniteRange(0, 1), metavar="SHARE"),
    field_option("--purge", is_flag=True, more="Run vacuum afterwards."),
    delta_stream_option(
        "--content-type",
        type=click.Choice(["parquet", "feather", "orc", "csv"]),
        default=DEFAULTS.content_type.name.lower(),
        show_default=True,
        help="Format of compacted files.",
    ),
)
"""The sizes of index and files of delta streams."""


compaction_options = all_of(any_catalog_argument, table_argument, *_MEANS, json_option, detail_options, *_WHAT, *_SIZES)
"""The arguments and options that plan and compact share."""
