"""From an instruction document to the plans of its sessions: reads the table and the rates, and plans with them.

orders, 3 partitions, desired_sla 900      ->  statistics of two; the third has nothing to do
one of them does not answer now            ->  StoreError; without patience the smallest plan, and its session waits
offers, rates of their pools               ->  three plans
a branch of an Iceberg table               ->  one plan, for this machine: no cluster has the catalog's configuration
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltacompact import DeltaStreamCatalog
from deltacompact.base.settings import Settings
from deltacompact.catalog.opening import is_iceberg_catalog, open_catalog
from deltacompact.planning.statistics import PartitionStatistics
from sessions.base.model import SessionPlan
from sessions.base.troubles import cause_of
from sessions.documents.instruction import Instruction
from sessions.documents.request import request_of_document
from sessions.documents.streams import one_spelling
from sessions.planning.gather import Gathered, gather
from sessions.planning.learning import RateStore
from sessions.planning.plan import as_found_later
from sessions.planning.prices import Offer
from sessions.planning.remedies import plan_with_remedy
from sessions.planning.situation import Situation, Wish
from sessions.planning.starts import StartStore

if TYPE_CHECKING:  # importing PyIceberg takes a second
    from deltacompact.catalog.iceberg import IcebergCatalog


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans job runs with these offers, rates and starts. `busy_slots()`: how many CPUs of this machine are taken now.
    `clock` dates the plans.

    Raises NotFoundError and InputError if a document cannot be served at all, and a partition's error that may pass:
    without patience only if every partition has one. A partition that cannot be folded or read, or has nothing to do,
    gets the smallest plan: its session finds out, and its record says so.
    """

    rates: RateStore
    starts: StartStore
    offers: tuple[Offer, ...]
    sessions_max: int
    prices: str = ""
    busy_slots: Callable[[], int] = lambda: 0
    open_catalog: Callable[[str], DeltaStreamCatalog | IcebergCatalog] = open_catalog
    clock: Callable[[], float] = time.time

    def __call__(self, instruction: Instruction, patient: bool = True) -> tuple[SessionPlan, ...]:
        settings = instruction.engine_settings()
        catalog = self.open_catalog(instruction.catalog)
        statistics: Sequence[PartitionStatistics]
        is_known = [True]
        if is_iceberg_catalog(catalog):
            from sessions.planning.branches import branch_statistics

            statistics = [branch_statistics(catalog, instruction)]
        else:
            found = _gathered(catalog, instruction, settings, patient)
            is_known = [gathered.statistics is not None for gathered in found]
            statistics = [
                gathered.statistics or PartitionStatistics(instruction.source_table_id, gathered.partition)
                for gathered in found
            ]
        wish = Wish(
            instruction.desired_sla,
            instruction.hash_bucket_count,
            settings.rows_per_round,
            settings.concurrent_tasks or settings.local_threads,
            settings.memory_per_task_bytes,
            settings.memory_bytes,
        )
        on_s3 = instruction.catalog.startswith("s3://")
        statistics = [
            replace(statistic, catalog=one_spelling(instruction.catalog), is_remote=on_s3) for statistic in statistics
        ]
        mode = instruction.chosen_mode if instruction.is_iceberg else ""
        plans = plan_with_remedy(statistics, wish, self._situation(settings.executor, on_s3, mode))
        return tuple(plan if known else as_found_later(plan) for plan, known in zip(plans, is_known, strict=True))

    def _situation(self, executor: str, on_s3: bool, mode: str) -> Situation:
        """The offers with what is known of them. Only S3 can be reached from clusters: else only offers here count."""
        starts = self.starts.read()
        offers = tuple(
            starts.expected(offer)
            for offer in self.offers
            if executor in ("auto", offer.executor) and (on_s3 or offer.here)
        )
        known = self.rates.expectations((offer.pool for offer in offers), mode)
        return Situation(offers, known, self.sessions_max, self.busy_slots(), self.prices, self.clock())


def _gathered(
    catalog: DeltaStreamCatalog, instruction: Instruction, settings: Settings, patient: bool
) -> tuple[Gathered, ...]:
    """The partitions of a document. Raises an error that may pass, because a plan without the partition is a guess."""
    request = request_of_document(instruction, settings, instruction.partition_values, instruction.hash_bucket_count)
    found = gather(catalog, request)
    passing = [gathered.error for gathered in found if gathered.error and cause_of(gathered.error) is not None]
    if passing and (patient or len(passing) == len(found)):
        raise passing[0]
    return found
