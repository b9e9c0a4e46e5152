"""The planner: what holds of every plan, whatever the table, the offers and the SLA."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from deltacompact import DeltaStreamCatalog, Settings, compact, open_catalog
from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.base.settings import Options
from deltacompact.executors.claims import RayNode, TaskClaim
from deltacompact.job import Request
from deltacompact.planning.sizing import index_sizes, task_memory
from deltacompact.planning.statistics import IndexStatistics, PartitionStatistics
from deltacompact.planning.touched import UNKNOWN
from deltacompact.planning.within_memory import MEMORY_BYTES_MIN, within_memory
from deltacompact.planning.work import TERMS
from deltacompact.reports.plan_report import plan_report
from deltacompact.storage.memory import MemoryStore
from sessions.base.model import JobRunSession, Outcome, SessionPlan, SessionState
from sessions.documents.instruction import of_values
from sessions.planning.admission import DispatcherLimits, WaitingGroup, admit
from sessions.planning.candidates import NODES, best, candidates
from sessions.planning.gather import gather
from sessions.planning.grouping import WORK_OVER_START, Groupable, grouped
from sessions.planning.learning import RateStore
from sessions.planning.plan import plan_job_run, settings_of
from sessions.planning.planner import Planner
from sessions.planning.prices import DEFAULT, NodeType, Offer, offers_here, offers_of_clusters, read_prices
from sessions.planning.reasons import PlanReason, Wait
from sessions.planning.situation import Situation, Wish
from sessions.planning.starts import StartStore
from sessions.records.swapping import SwappedRecords

GIB = task_memory.GIB
PRICES = read_prices()
HERE = offers_here(2, 24 * GIB)
CLUSTERS = offers_of_clusters(PRICES, "ray_cluster", 250)
NO_WISH = Wish()
ALL = Situation((*HERE, *CLUSTERS), {})

BIG = PartitionStatistics(
    "orders", {"day": "1"}, (10**9,) * 30, 3 * 10**12, base_rows=10**10, base_bytes=10**13,
    read_bytes=1 << 28, index=IndexStatistics(200, (10**10,), 10**10),
)  # fmt: skip
SMALL = PartitionStatistics(
    "orders", {"day": "2"}, (1_000,) * 10, 10**5, base_small_files=1, base_rows=10**5, base_bytes=10**7,
    read_bytes=1 << 20, index=IndexStatistics(1, (10**5,), 10**5),
)  # fmt: skip

rows = st.integers(0, 10**12)


@st.composite
def statistics(draw: st.DrawFn) -> PartitionStatistics:
    base_rows = draw(rows)
    index = None
    if base_rows:
        above = draw(st.lists(st.integers(1, max(1, base_rows // 8)), max_size=7))
        index = IndexStatistics(
            draw(st.integers(1, 40_000)), (base_rows, *above), base_rows, mergeable=draw(st.booleans())
        )
    row_bytes = draw(st.sampled_from([1, 60, 1_100, 20_000]))
    files = tuple(draw(st.lists(st.integers(0, 10**11), max_size=30)))
    delta_bytes = sum(files) * row_bytes // 3
    text_bytes = draw(st.sampled_from([0, delta_bytes // 2, delta_bytes]))
    return PartitionStatistics(
        "orders",
        {"day": "1"},
        files,
        delta_bytes,
        text_bytes=text_bytes,
        text_file_bytes=text_bytes // draw(st.sampled_from([1, 3, 30])),
        base_rows=base_rows,
        base_bytes=base_rows * row_bytes // 3,
        entry_bytes=draw(st.sampled_from([32, 41, 64])),
        read_bytes=draw(st.sampled_from([1 << 20, 1 << 28, 1 << 30])),
        index=index,
    )


@st.composite
def offers(draw: st.DrawFn) -> tuple[Offer, ...]:
    cpus = draw(st.sampled_from([1, 2, 8, 64]))
    here = offers_here(cpus, cpus * draw(st.sampled_from([1, 4, 8])) * GIB, draw(st.sampled_from([0.0, 0.5])))
    clusters = offers_of_clusters(PRICES, "ray_cluster", draw(st.sampled_from([1, 7, 40, 250])), draw(st.booleans()))
    return draw(st.sampled_from([here, clusters, (*here, *clusters)]))


slas = st.one_of(st.none(), st.floats(1, 1e6))


def planned(one: PartitionStatistics, wish: Wish = NO_WISH, situation: Situation = ALL) -> SessionPlan:
    (plan,) = plan_job_run([one], wish, situation)
    return plan


def reason(plan: SessionPlan, what: str) -> str:
    (choice,) = [choice for choice in plan.choices if choice.what == what]
    assert choice.text
    return choice.reason


@pytest.mark.slow
def test_plan_and_a_dispatcher_that_has_learned_nothing_expect_the_same() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    settings = Settings(executor="local", local_threads=2)
    request = Request("t", options=Options.of(settings))
    for first, rows in ((0, 1_000_000), (600_000, 800_000), (7, 1)):  # a first compaction, a merge, a run
        catalog.append("t", pa.table({"k": np.arange(first, first + rows)}))
        (found,) = gather(catalog, request)
        assert found.statistics is not None
        (report,) = plan_report(catalog, request).document
        by_log, by_footers = (
            planned(statistics, situation=Situation(HERE[:1], {})).expected.seconds
            for statistics in (replace(found.statistics, touched=UNKNOWN), found.statistics)
        )
        assert report["expected_s"] == pytest.approx(by_log, abs=0.08), "and a cold start"
        assert by_footers < 1.05 * by_log
        compact("t", delta_catalog_client=catalog, settings=settings)


@given(statistics(), offers(), st.data())
def test_more_nodes_never_take_longer(one: PartitionStatistics, some: tuple[Offer, ...], data: st.DataObject) -> None:
    fewer = data.draw(st.sampled_from(NODES))
    more = data.draw(st.integers(fewer, 250))
    seconds = []
    for nodes_max in (fewer, more):
        situation = Situation(tuple(replace(offer, nodes_max=nodes_max) for offer in some), {})
        fitting = [way.promised_s for way in candidates(one, Wish(1e-3), situation) if way.fits]
        seconds.append(min(fitting, default=float("inf")))
    assert seconds[1] <= seconds[0]


@given(statistics(), offers(), st.data())
def test_more_data_never_takes_less(one: PartitionStatistics, some: tuple[Offer, ...], data: st.DataObject) -> None:
    grown = {
        "delta_file_rows": tuple(count + data.draw(st.integers(0, 10**9)) for count in one.delta_file_rows)
        + tuple(data.draw(st.lists(st.integers(0, 10**9), max_size=3))),
        "delta_bytes": one.delta_bytes + data.draw(st.integers(0, 10**12)),
        "base_bytes": one.base_bytes + data.draw(st.integers(0, 10**12)),
    }
    if one.index:
        count = data.draw(st.integers(0, 10**11))
        first, *above = one.index.runs
        grown["base_rows"] = one.base_rows + count
        grown["index"] = replace(one.index, runs=(first, *above), entries=one.index.entries + count)
    for offer in some:
        situation = Situation((replace(offer, nodes_max=1),), {})
        before, after = (candidates(given, Wish(), situation) for given in (one, replace(one, **grown)))
        if before[0].on == after[0].on and before[0].fits and after[0].fits:
            assert after[0].seconds >= before[0].seconds * (1 - 1e-12)


@given(statistics(), offers(), slas)
def test_every_plan_fits_memory_or_says_that_nothing_does(
    one: PartitionStatistics, some: tuple[Offer, ...], sla: float | None
) -> None:
    situation = Situation(some, {})
    plan = planned(one, Wish(sla), situation)
    if reason(plan, "memory") == PlanReason.EXCEEDS_MEMORY:
        assert not any(way.fits for way in candidates(one, Wish(sla), situation))
        return
    node = next(offer.node for offer in some if offer.node.name == plan.node_type)
    assert plan.peak_bytes <= node.memory_bytes
    assert plan.slots * plan.memory_per_task_bytes <= node.memory_bytes * plan.workers_max
    assert 1 <= plan.workers_initial <= plan.workers_max and plan.slots >= 1 and plan.rounds >= 1
    if one.index and one.index.hash_buckets == plan.hash_bucket_count:
        assert not plan.rehash
        memory = plan.memory_per_task_bytes
        assert not index_sizes.must_rehash(one.entries, plan.hash_bucket_count, one.entry_bytes, memory)


@given(statistics(), offers(), slas)
def test_the_interval_contains_what_is_expected(
    one: PartitionStatistics, some: tuple[Offer, ...], sla: float | None
) -> None:
    plan = planned(one, Wish(sla), Situation(some, {}))
    assert 0 < plan.expected.low_s <= plan.expected.seconds <= plan.expected.high_s
    assert sum(plan.stage_s.values()) == pytest.approx(plan.expected.seconds)
    assert set(plan.work) <= set(TERMS) and plan.cost_usd >= 0


@given(statistics(), offers(), st.floats(1, 1e6), st.floats(1, 1e6))
def test_a_longer_sla_never_costs_more(
    one: PartitionStatistics, some: tuple[Offer, ...], shorter: float, longer: float
) -> None:
    shorter, longer = sorted((shorter, longer))
    situation = Situation(some, {})
    of = [best(candidates(one, Wish(sla), situation), sla) for sla in (shorter, longer)]
    if of[0][1] is PlanReason.CHEAPEST_THAT_MEETS_SLA:
        assert of[1][1] is PlanReason.CHEAPEST_THAT_MEETS_SLA
        assert of[1][0].usd <= of[0][0].usd


@given(statistics(), offers(), st.floats(1, 1e6))
def test_leaving_ways_out_early_never_changes_what_is_best(
    one: PartitionStatistics, some: tuple[Offer, ...], sla: float
) -> None:
    situation = Situation(some, {})
    chosen, why = best(candidates(one, Wish(sla), situation), sla)
    everything = [
        way for offer in some for way in candidates(one, Wish(1e-3), Situation((offer,), {})) if way.fits
    ]  # nothing meets a millisecond: nothing is left out
    meeting = [way for way in everything if way.promised_s <= sla]
    assert (why is PlanReason.CHEAPEST_THAT_MEETS_SLA) == bool(meeting)
    if meeting:
        assert chosen.usd == min(way.usd for way in meeting)
    elif everything:
        assert chosen.promised_s == min(way.promised_s for way in everything)


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.floats(0.01, 100), st.floats(1, 3)).map(
            lambda drawn: Groupable(drawn[0], drawn[1], 2.0, drawn[1] * drawn[2])
        )
    ),
    st.one_of(st.none(), st.floats(1, 100)),
)
def test_grouping_keeps_every_partition_once(items: list[Groupable], within_s: float | None) -> None:
    groups = grouped(items, within_s)
    assert sorted(place for members in groups for place in members) == list(range(len(items)))
    for members in groups:
        assert members == sorted(members) and len({items[place].kind for place in members}) == 1
        seconds = sum(items[place].seconds for place in members)
        if len(members) > 1:
            assert seconds <= WORK_OVER_START * 2.0
            promise_s = sum(items[place].promise_s for place in members)
            assert within_s is None or 2.0 + promise_s <= within_s + 1e-9


def test_a_thousand_small_partitions_share_a_few_processes() -> None:
    plans = plan_job_run([SMALL] * 1_000, Wish(), ALL)
    groups = {plan.group for plan in plans}
    assert len(plans) == 1_000 and 2 <= len(groups) <= 100
    starts_s, work_s = len(groups) * plans[0].start_s, sum(plan.expected.seconds for plan in plans)
    assert starts_s <= 1.1 * work_s / WORK_OVER_START, "starting takes a tenth of the work"
    assert {reason(plan, "group") for plan in plans} == {PlanReason.SHARES_START}
    assert {plan.slots for plan in plans} == {1}, "two groups at a time have a CPU each"
    assert planned(SMALL).slots == 2


@pytest.mark.slow
def test_planning_takes_milliseconds_for_each_partition() -> None:
    began = time.process_time()
    assert len(plan_job_run([SMALL] * 2_000, Wish(3_600.0), ALL)) == 2_000
    assert time.process_time() - began < 20


def test_a_short_sla_makes_small_groups() -> None:
    plans = plan_job_run([SMALL] * 300, Wish(6.0), replace(ALL, sessions_max=100, offers=offers_here(64, 512 * GIB)))
    of_group: dict[str, float] = {}
    for plan in plans:
        of_group[plan.group] = of_group.get(plan.group, plan.start_s) + plan.expected.promise_s
    assert len(of_group) > 5 and max(of_group.values()) <= 6.0
    assert {reason(plan, "desired_sla") for plan in plans} == {PlanReason.MET}


def test_the_cheapest_that_meets_the_sla() -> None:
    by_sla = {sla: planned(BIG, Wish(sla)) for sla in (600.0, 1_200.0, 3_600.0)}
    for sla, plan in by_sla.items():
        assert plan.start_s + plan.expected.promise_s <= sla
        assert reason(plan, "runs_on") == PlanReason.CHEAPEST_THAT_MEETS_SLA
        assert reason(plan, "desired_sla") == PlanReason.MET
    assert by_sla[600.0].cost_usd > by_sla[1_200.0].cost_usd >= by_sla[3_600.0].cost_usd > 0
    assert by_sla[600.0].workers_max > by_sla[3_600.0].workers_max


def test_an_sla_that_cannot_be_met_is_said_at_once_with_the_nearest() -> None:
    plan = planned(BIG, Wish(60.0))
    (told,) = [choice for choice in plan.choices if choice.what == "desired_sla"]
    assert told.reason == PlanReason.CANNOT_BE_MET and reason(plan, "runs_on") == PlanReason.FASTEST
    assert f"the nearest that can is {told.value:,} s" in told.text
    assert reason(planned(BIG, Wish(float(told.value))), "desired_sla") == PlanReason.MET
    assert reason(planned(BIG, Wish(told.value - 2.0)), "desired_sla") == PlanReason.CANNOT_BE_MET


def test_sessions_that_wait_for_each_other_count_in_the_sla() -> None:
    many = [replace(BIG, partition={"day": str(day)}) for day in range(6)]
    at_once, in_turn = (
        plan_job_run(many, Wish(3_600.0), Situation(CLUSTERS, {}, sessions_max=sessions)) for sessions in (6, 1)
    )
    assert {reason(plan, "desired_sla") for plan in at_once} == {PlanReason.MET}
    assert {reason(plan, "desired_sla") for plan in in_turn} == {PlanReason.CANNOT_BE_MET}


def test_nobody_asks_for_an_sla() -> None:
    assert reason(planned(SMALL), "runs_on") == PlanReason.CHEAPEST
    huge = replace(BIG, base_bytes=10**16, base_rows=10**12, index=IndexStatistics(40_000, (10**12,), 10**12))
    plan = planned(huge)
    assert reason(plan, "runs_on") == PlanReason.CHEAPEST_WITHIN_A_DAY
    assert plan.expected.seconds < 86_400 and reason(plan, "desired_sla") == PlanReason.NOT_ASKED_FOR


@pytest.mark.parametrize(
    ("entries", "rehash", "why"),
    [
        (int(150e6 * 2 * 0.6 * 0.89), False, PlanReason.INHERITED),  # 60 % of 8 GiB are a task's: of that, 89 %
        (int(150e6 * 2 * 0.6 * 0.91), True, PlanReason.SMALL_TABLE),
        (10**11, True, PlanReason.HALF_OF_MEMORY),
    ],
)
def test_rehash_above_90_percent_of_a_tasks_memory_to_half(entries: int, rehash: bool, why: PlanReason) -> None:
    one = replace(SMALL, delta_file_rows=(1,), base_rows=entries, index=IndexStatistics(1, (entries,), entries))
    plan = planned(one, Wish(), Situation(CLUSTERS, {}))
    assert plan.rehash is rehash and reason(plan, "hash_buckets") == why
    assert reason(plan, "rehash") == (PlanReason.BUCKETS_TOO_LARGE if rehash else PlanReason.BUCKETS_FIT)
    (text,) = [choice.text for choice in plan.choices if choice.what == "rehash"]
    assert rehash or text == "1 bucket still fits"
    if rehash:
        half = index_sizes.rows_per_bucket(32, plan.memory_per_task_bytes)
        assert one.entries / plan.hash_bucket_count <= half
        assert "rehash" in plan.stage_s


def test_what_the_document_asks_for_is_obeyed() -> None:
    plan = planned(BIG, Wish(None, 500, 10**9))
    assert (plan.hash_bucket_count, plan.rounds) == (500, 30)
    assert reason(plan, "hash_buckets") == reason(plan, "rehash") == reason(plan, "rounds") == PlanReason.ASKED_FOR


def test_limits_of_the_document_are_kept() -> None:
    eight = Situation(offers_here(8, 64 * GIB), {})
    assert planned(SMALL, Wish(), eight).slots == 8
    limited = planned(SMALL, Wish(tasks_max=3, memory_per_task_bytes=GIB), eight)
    assert (limited.slots, limited.memory_per_task_bytes) == (3, GIB)
    assert limited.expected.seconds > planned(SMALL, Wish(), eight).expected.seconds
    too_little = planned(SMALL, Wish(memory_per_task_bytes=100 << 20), eight)
    assert reason(too_little, "memory") == PlanReason.EXCEEDS_MEMORY


def test_the_engine_is_told_what_was_planned() -> None:
    here, cluster = planned(SMALL), planned(BIG, Wish(900.0))
    assert Settings(**settings_of(here)) == Settings(
        executor="local",
        concurrent_tasks=2,
        memory_per_task_bytes=here.memory_per_task_bytes,
        memory_bytes=24 * GIB,
    )
    told = Settings(**settings_of(cluster))
    assert told.executor == "ray" and told.ray_cpus == told.concurrent_tasks == cluster.slots
    first_stage = replace(cluster, workers_initial=1)
    assert settings_of(first_stage)["ray_cpus"] == cluster.slots // cluster.workers_max
    assert settings_of(replace(first_stage, node_cpus=0))["ray_cpus"] == cluster.slots // cluster.workers_max


def test_workers_that_run_few_large_tasks_are_waited_for_by_their_cpus() -> None:
    """A task claims its memory. Where each worker ran 4 tasks on 16 CPUs, a quarter of the workers was waited for."""
    wide = replace(SMALL, delta_file_rows=(1,) * 100, read_bytes=6 << 30, undivided_bytes=6 << 30)
    plan = planned(wide, Wish(), Situation(CLUSTERS, {}))
    node = next(offer.node for offer in CLUSTERS if offer.node.name == plan.node_type)
    assert plan.slots < node.vcpus * plan.workers_max and reason(plan, "memory") == PlanReason.MEMORY
    told = Settings(**settings_of(plan))
    heap, _ = task_memory.node_memory(node.memory_bytes)
    nodes = [RayNode(str(number), node.vcpus, heap) for number in range(plan.workers_max)]
    claim = TaskClaim.of(nodes, told.concurrent_tasks, told.memory_per_task_bytes)
    assert told.ray_cpus == node.vcpus * plan.workers_initial
    assert sum(claim.slots) == plan.slots and max(claim.slots) == plan.slots // plan.workers_max


def test_as_many_tasks_as_the_document_allows_run_on_no_more_workers() -> None:
    plan = planned(BIG, Wish(900.0, tasks_max=4), Situation(CLUSTERS, {}))
    assert plan.workers_max <= plan.slots <= 4


def test_the_most_workers_that_may_be_are_considered() -> None:
    seventeen = Situation(tuple(replace(offer, nodes_max=17) for offer in CLUSTERS), {})
    assert {way.nodes for way in candidates(BIG, Wish(1e-3), seventeen)} >= {16, 17}


def test_a_document_that_asks_for_large_tasks_gets_as_many_as_fit() -> None:
    plan = planned(BIG, Wish(memory_per_task_bytes=32 * GIB), Situation(CLUSTERS, {}))
    node = next(offer.node for offer in CLUSTERS if offer.node.name == plan.node_type)
    assert plan.slots == plan.workers_max * max(1, task_memory.node_memory(node.memory_bytes)[0] // (32 * GIB))


def test_input_beyond_the_object_store_takes_rounds() -> None:
    one_node = Situation(tuple(replace(offer, nodes_max=1) for offer in CLUSTERS), {})
    plan = planned(BIG, Wish(), one_node)
    assert plan.rounds > 1 and reason(plan, "rounds") == PlanReason.EXCEEDS_OBJECT_STORE
    assert planned(SMALL).rounds == 1 and reason(planned(SMALL), "rounds") == PlanReason.FITS_OBJECT_STORE


def test_a_machine_with_little_memory_runs_fewer_tasks_at_a_time() -> None:
    wide = replace(SMALL, read_bytes=320 << 20, undivided_bytes=320 << 20)  # rows of up to 64 MiB
    plan = planned(wide, Wish(), Situation(offers_here(8, 8 * GIB), {}))
    assert plan.slots < 8 and reason(plan, "memory") == PlanReason.MEMORY
    eight = Situation(offers_here(8, 8 * GIB), {})
    hopeless = planned(replace(wide, read_bytes=64 * GIB, undivided_bytes=64 * GIB), Wish(), eight)
    assert reason(hopeless, "memory") == PlanReason.EXCEEDS_MEMORY
    bit_by_bit = planned(replace(wide, read_bytes=64 * GIB), Wish(), eight)
    assert (bit_by_bit.slots, reason(bit_by_bit, "memory")) == (1, PlanReason.MEMORY)
    assert bit_by_bit.peak_bytes <= bit_by_bit.memory_bytes == 8 * GIB


@given(st.integers(1, 16), st.integers(MEMORY_BYTES_MIN, 64 * GIB), st.integers(1, 40))
def test_what_runs_here_at_a_time_may_not_take_more_than_there_is(cpus: int, memory: int, sessions: int) -> None:
    limits = DispatcherLimits(cpus, memory_bytes=memory, slots=cpus)
    plans = plan_job_run([SMALL] * sessions, Wish(), Situation(offers_here(cpus, memory)[:1], {}, cpus))
    groups = sorted({plan.group for plan in plans})
    waiting = [WaitingGroup.of(name, [plan for plan in plans if plan.group == name], 0.0, limits) for name in groups]
    started = admit(waiting, [], limits, 0.0).start
    bounds = [max(plan.memory_bytes for plan in plans if plan.group == name) for name in started]
    assert started and sum(bounds) <= memory
    for plan in plans:
        engine = within_memory(Settings(**settings_of(plan)))
        assert plan.peak_bytes <= plan.memory_bytes and 1 <= engine.local_threads <= plan.slots


def test_a_document_may_ask_for_less_memory_and_stays_on_this_machine_then() -> None:
    document = {"version": 1, "catalog": "/lake", "source_table_id": "t", "settings": {"memory_bytes": GIB}}
    assert of_values(document).engine_settings().memory_bytes == GIB
    plan = planned(BIG, Wish(memory_bytes=GIB))
    assert (plan.executor, plan.memory_bytes) == ("local", GIB)
    for settings, said in (
        ({"memory_bytes": 1}, r"settings\.memory_bytes: it is 1, it must be 268,435,456 or more"),
        ({"memory_bytes": GIB, "executor": "ray"}, r"settings\.memory_bytes: it bounds this process, not a cluster"),
    ):
        with pytest.raises(InputError, match=said):
            of_values({**document, "settings": settings})


def test_what_runs_here_already_leaves_fewer_slots() -> None:
    machine = offers_here(8, 64 * GIB)
    assert planned(SMALL, Wish(), Situation(machine, {})).slots == 8
    busy = planned(SMALL, Wish(), Situation(machine, {}, busy_slots=6))
    assert busy.slots == 2 and busy.memory_per_task_bytes == 64 * GIB * 2 // 8 * 0.6 // 2


def test_workers_that_the_first_stage_has_work_for_are_there_from_the_start() -> None:
    one = replace(BIG, delta_file_rows=(10**6,), delta_bytes=10**8)
    plan = planned(one, Wish(900.0))
    assert plan.workers_initial == 1 < plan.workers_max and reason(plan, "workers_initial") == PlanReason.FIRST_STAGE
    assert reason(planned(BIG, Wish(900.0)), "workers_initial") == PlanReason.ALL_SLOTS


def test_no_offer_is_an_error() -> None:
    with pytest.raises(ValueError, match="no offer"):
        plan_job_run([SMALL], Wish(), Situation((), {}))


def test_numbers_of_nodes_are_all_small_ones_and_then_steps() -> None:
    assert list(NODES) == sorted(set(NODES)) and NODES[:16] == tuple(range(1, 17)) and NODES[-1] == 250
    assert all(after / before < 1.2 for before, after in pairwise(NODES[15:]))


def test_prices_are_a_dated_table_and_clusters_have_8_gib_a_cpu(tmp_path: Path) -> None:
    assert PRICES.version >= 1 and PRICES.date[:2] == "20" and PRICES.node("r5n.8xlarge").vcpus == 32
    assert {offer.node.name for offer in CLUSTERS} == {"r5n.8xlarge", "r6in.4xlarge", "r6in.8xlarge"}
    for name in ("r8g.4xlarge", "r6in.xlarge"):  # of another architecture; the head's
        with pytest.raises(ValueError, match=f"no worker can be a '{name}'"):
            offers_of_clusters(PRICES, "ray_cluster", 8, names=["r5n.8xlarge", name])
    paper = NodeType("r5n.8xlarge", 32, 256 * GIB, 2.384, 2.384 * 0.4)
    assert PRICES.node("r5n.8xlarge") == paper
    assert offers_of_clusters(PRICES, "kuberay", 8, spot=False, names=["r5n.8xlarge"]) == (
        Offer("kuberay", "ray", paper, 8, 90.0, 2.384, 0.34866),
    )
    thin = tmp_path / "thin.toml"
    thin.write_text(DEFAULT.read_text().replace("memory_gib = 128", "memory_gib = 64"))
    names = {offer.node.name for offer in offers_of_clusters(read_prices(thin), "ray_cluster", 8)}
    assert names == {"r5n.8xlarge", "r6in.8xlarge"}
    thin.write_text(DEFAULT.read_text().replace("version = 1", ""))
    with pytest.raises(ValueError, match=r"thin\.toml: 'version' is missing"):
        read_prices(thin)
    for price in ("inf", "nan", "-1"):  # the record of a job run could not be read after that cost was in it
        thin.write_text(DEFAULT.read_text().replace("spot_share = 0.40", f"spot_share = {price}"))
        with pytest.raises(ValueError, match=r"thin\.toml: .* is no price"):
            read_prices(thin)
    with pytest.raises(ValueError, match=r"no price for 'm5\.large'"):
        PRICES.node("m5.large")


def test_statistics_come_from_the_log(tmp_path: Path) -> None:
    import pyarrow as pa

    catalog = open_catalog(tmp_path)
    catalog.create_table("orders", ["day"], ["id"])
    for day in ("1", "2", "3"):
        catalog.append("orders", pa.table({"id": range(100), "text": ["x"] * 100}), {"day": day})
    compact("orders", delta_catalog_client=catalog, partitions=[{"day": "2"}], settings=Settings(executor="local"))
    catalog.append("orders", pa.table({"id": [1, 2]}), {"day": "1"}, operation="delete")
    csv = tmp_path / "more.csv"
    csv.write_text("id,text\n7,y\n8,z\n")
    catalog.append_files("orders", [csv], {"day": "3"})
    by_day = {statistics.partition["day"]: statistics for statistics in gather(catalog, Request("orders"))}
    first, second, third = (by_day[day] for day in "123")
    assert second.nothing_to_do is not None and second.statistics is None
    assert first.statistics is not None and third.statistics is not None
    assert first.statistics.delta_file_rows == (100, 2) and first.statistics.delete_rows == 2
    assert first.statistics.index is None and first.statistics.stream == "orders (first)"
    assert third.statistics.text_bytes == csv.stat().st_size < third.statistics.delta_bytes
    catalog.append("orders", pa.table({"id": [1], "text": ["n"]}), {"day": "2"})
    (again,) = gather(catalog, Request("orders", partitions=[{"day": "2"}]))
    assert again.statistics is not None and again.statistics.index == IndexStatistics(1, (100,), 100)
    assert (again.statistics.base_rows, again.statistics.base_small_files) == (100, 1)
    assert again.statistics.read_through == 2 and again.statistics.stream == "orders"
    first_again, missing = gather(catalog, Request("orders", partitions=[{"day": "1"}, {"day": "9"}, {"day": "1"}]))
    assert first_again == first and isinstance(missing.error, NotFoundError)
    with pytest.raises(NotFoundError, match="'invoices' does not exist"):
        gather(catalog, Request("invoices"))
    with pytest.raises(InputError, match="unknown partition key 'night'"):
        gather(catalog, Request("orders", partitions=[{"night": "1"}]))


@pytest.mark.slow
def test_large_files_that_may_stay_as_they_are_take_less(tmp_path: Path) -> None:
    import numpy as np
    import pyarrow as pa

    catalog = open_catalog(tmp_path)
    catalog.create_table("wide", primary_keys=["id"])
    payload = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(140 << 10), 1_000, [None, pa.py_buffer(np.random.default_rng(1).bytes(1_000 * 140 << 10))]
    )
    catalog.append("wide", pa.table({"id": range(1_000), "payload": payload}))
    catalog.append("wide", pa.table({"id": [1_001], "payload": payload[:1]}))
    (found,) = gather(catalog, Request("wide"))
    assert found.statistics is not None and found.statistics.kept_bytes > 128 << 20
    assert found.statistics.delta_bytes - found.statistics.kept_bytes < 1 << 20
    small = replace(found.statistics, kept_bytes=0)
    assert planned(found.statistics).expected.seconds < planned(small).expected.seconds


def test_a_partition_that_cannot_be_folded_says_so_and_the_others_are_planned(tmp_path: Path) -> None:
    import pyarrow as pa

    catalog = open_catalog(tmp_path)
    catalog.create_table("orders", ["day"])
    catalog.append("orders", pa.table({"id": [1]}), {"day": "1"})
    catalog.append("orders", pa.table({"other": [1]}), {"day": "2"})
    good, bad = gather(catalog, Request("orders", ["id"]))
    assert good.statistics is not None and good.error is None
    assert bad.statistics is None and "id" in str(bad.error)


def test_a_document_is_planned_with_what_was_learned(tmp_path: Path) -> None:
    import pyarrow as pa

    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("orders", ["day"], ["id"])
    for day in ("1", "2"):
        catalog.append("orders", pa.table({"id": range(100)}), {"day": day})
    compact("orders", delta_catalog_client=catalog, partitions=[{"day": "2"}], settings=Settings(executor="local"))
    document = {"version": 1, "catalog": str(tmp_path / "lake"), "source_table_id": "orders", "desired_sla": 60}
    rates = RateStore(SwappedRecords(MemoryStore()))
    planner = Planner(rates, StartStore(SwappedRecords(MemoryStore())), HERE, sessions_max=2)
    plans = planner(of_values(document))
    assert [plan.partition for plan in plans] == [{"day": "1"}, {"day": "2"}]
    assert [plan.delta_rows for plan in plans] == [100, 0], "the session of the second says that there is nothing to do"
    assert (plans[1].hash_bucket_count, plans[1].work) == (0, {}), "if more has come by then, it takes what it finds"
    assert {plan.executor for plan in plans} == {"local"} and reason(plans[0], "desired_sla") == PlanReason.MET
    session = JobRunSession("day=1", "run-1", {"day": "1"}, SessionState.SUCCEEDED, plan=plans[0])
    slow = 50 * plans[0].expected.seconds
    rates.learn([replace(session, id=f"{name}", outcome=Outcome(slow)) for name in range(5)])
    (again,) = planner(of_values({**document, "partitions": [{"day": 1}]}))
    assert again.expected.seconds > 20 * plans[0].expected.seconds
    (asked,) = planner(
        of_values({**document, "partitions": [{"day": "1"}], "hash_bucket_count": 4, "settings": {"executor": "ray"}})
    )
    assert (asked.executor, asked.hash_bucket_count) == ("ray", 4)


def test_the_documents_tell_every_reason() -> None:
    page = (Path(__file__).parents[3] / "docs" / "planning.md").read_text()
    for word in (*PlanReason, *Wait):
        assert f"`{word}`" in page, word
