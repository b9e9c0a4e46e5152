"""rehash: the index of a table gets another number of hash buckets."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.settings import DEFAULTS, EXECUTORS, HASH_BUCKETS_MAX, Settings
from deltacompact.base.wording import counted
from deltacompact.cli.answers import Totals, answer_for_partitions, for_each
from deltacompact.cli.arguments import catalog_argument, json_option, one_partition, partition_option, table_argument
from deltacompact.cli.detail import verbose_option
from deltacompact.reports.scale import Detail

if TYPE_CHECKING:
    from deltacompact.base.model import Partition
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog


@click.command()
@catalog_argument
@table_argument
@partition_option
@click.option(
    "--hash-buckets",
    type=click.IntRange(1, HASH_BUCKETS_MAX),
    required=True,
    metavar="N",
    help="The new number of hash buckets of the index.",
)
@click.option(
    "--executor",
    type=click.Choice(EXECUTORS),
    default=DEFAULTS.executor,
    show_default=True,
    help="local: in this process; ray: on a Ray cluster; auto: large partitions on Ray.",
)
@verbose_option
@json_option
def rehash(
    catalog: DeltaStreamCatalog,
    table: str,
    partition: Sequence[str],
    hash_buckets: int,
    executor: str,
    verbose: bool,
    as_json: bool,
) -> None:
    """Move the index to another number of hash buckets. No data is read.

    \b
    deltacompact rehash ./lake orders --hash-buckets 64
    """
    from deltacompact.cli.console import out
    from deltacompact.executors.choose import executors_for, lane_for
    from deltacompact.maintenance.check import index_entries, rehash_table

    settings = Settings(executor=executor)
    executor_of = functools.cache(lambda lane: executors_for(settings, {lane: 1})[lane])

    def rehashed(chosen: Partition) -> list[_Rehashed]:
        lane = lane_for(settings, index_entries(catalog, table, chosen), 0)
        done = [_Rehashed(*each) for each in rehash_table(catalog, table, hash_buckets, executor_of(lane), chosen)]
        return done or [_Rehashed(chosen, None, hash_buckets)]

    only = one_partition(catalog, table, partition)
    done, errors = for_each(catalog, table, only, "rehashing", rehashed)
    totals = Totals(_moved_words, lambda each: each.has_moved, Detail(verbose))
    answer_for_partitions(as_json, done, errors, _Rehashed.document, lambda each: out.print(str(each)), totals)


def _moved_words(done: Sequence[_Rehashed]) -> str:
    return f"{sum(each.has_moved for each in done):,} rehashed"


@dataclass(frozen=True, slots=True)
class _Rehashed:
    """The hash buckets of one partition. `before` None: it was not compacted yet."""

    partition: Partition
    before: int | None
    after: int

    @property
    def has_moved(self) -> bool:
        return self.before not in (None, self.after)

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.partition}: nothing to do: not compacted yet"
        if not self.has_moved:
            return f"{self.partition}: nothing to do: it has {counted(self.before, 'hash bucket')}"
        return f"{self.partition}: {counted(self.before, 'hash bucket')}, now {self.after}"

    def document(self) -> dict[str, Any]:
        return {
            "partition": dict(self.partition.values),
            "hash_buckets_before": self.before,
            "hash_buckets": self.after,
        }
