"""The commit protocol under concurrency: seeded schedules over real processes that stop before each store operation.

Writers, compactors, rehashes, restatements, vacuums and readers share one table. Their operations interleave, fail,
lose their replies, and the processes die and are started again. Afterwards the log tells in which order everything
took effect, and every acknowledgement, every read and the final table are held against that order.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from oracle import Oracle, Row
from simulation import Actor, Fault, Simulation, at_the_log, everywhere
from stores import unmeasured  # noqa: F401

from deltacompact import ConflictError, DeltaStreamCatalog, NotFoundError, PositionError, Settings, StoreError, compact
from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.model import Commit, OperationType, Partition, Token
from deltacompact.catalog.delta_stream import log as stream_log
from deltacompact.catalog.delta_stream.log import LogLimits
from deltacompact.catalog.delta_stream.log_entries import Fence
from deltacompact.catalog.delta_stream.vacuum import vacuum
from deltacompact.executors.local import LocalExecutor
from deltacompact.maintenance.check import check, rehash_table
from deltacompact.tabular.row_groups import WriteOptions
from deltacompact.tabular.writing import write_table

HOURS = 3600
DAYS = 24 * HOURS
LOCAL = Settings(executor="local", local_threads=1)
ALL = Partition()

Bag = Counter[Any]


def bag(rows: list[Row]) -> Bag:
    return Counter(frozenset((name, value) for name, value in row.items() if value is not None) for row in rows)


# --- what the table holds, by its log ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """What a writer commits at once under one token."""

    token: Token
    deltas: tuple[tuple[str, tuple[Row, ...]], ...]


@dataclass(frozen=True)
class Event:
    """One thing that took effect: a commit, or a restatement of all but the commits that were carried over it."""

    commit: Commit
    carried: frozenset[str] | None = None

    @property
    def is_restatement(self) -> bool:
        return self.carried is not None


@dataclass
class World:
    """The simulation, what was asked of it, and what was acknowledged."""

    sort_keys: list[tuple[str, str]]
    retention: int | None
    simulation: Simulation = field(default_factory=Simulation)
    batches: dict[Token, Batch] = field(default_factory=dict)
    restated: dict[int, tuple[Row, ...]] = field(default_factory=dict)
    acknowledged: dict[Token | None, int] = field(default_factory=dict)
    lineages: list[str] = field(default_factory=list)
    published: list[str] = field(default_factory=list)
    reads: list[tuple[int, int, Bag]] = field(default_factory=list)
    in_destination: int = 0
    """How many events the destination must have, since a compaction into it was acknowledged."""
    trace: list[str] = field(default_factory=list)

    def history(self) -> list[Event]:
        """Everything that took effect, in order, each once. Carried commits must be the end of their parent's."""
        events: list[Event] = []
        seen: set[str] = set()
        parent: tuple[str, ...] = ()
        lineage = stream_log.GENESIS
        catalog = self.simulation.catalog()
        if not catalog.log("t", ALL).exists():
            return []
        for state in catalog.log("t", ALL).chain():
            commits = state.commits
            if state.lineage != lineage:
                lineage, (restatement, *rest) = state.lineage, commits
                assert restatement.commit_id == lineage
                commits = tuple(rest)
                events.append(Event(restatement, frozenset(c.commit_id for c in commits if c.commit_id in seen)))
            carried = tuple(c.commit_id for c in commits if c.commit_id in seen)
            assert carried == parent[len(parent) - len(carried) :], f"{state.version} carries a delta out of order"
            assert carried == tuple(c.commit_id for c in commits[: len(carried)])
            events += [Event(commit) for commit in commits[len(carried) :]]
            parent = tuple(commit.commit_id for commit in commits)
            seen |= set(parent)
        return events

    def prefixes(self, history: list[Event]) -> Iterator[Bag]:
        """What the table holds after none, one, two, … of the events."""
        for length in range(len(history) + 1):
            oracle = Oracle(["k"], self.sort_keys, self.retention)
            kept: list[Event] = []
            for event in history[:length]:
                if event.carried is not None:
                    kept = [event, *(each for each in kept if each.commit.commit_id in event.carried)]
                else:
                    kept.append(event)
            for event in kept:
                for delta, rows in zip(event.commit.deltas, self._rows_of(event), strict=True):
                    oracle.apply(delta.position, delta.operation, [rows])
            yield bag(oracle.rows())

    def _rows_of(self, event: Event) -> list[tuple[Row, ...]]:
        if event.is_restatement:
            return [self.restated[event.commit.deltas[0].rows]]
        assert event.commit.token is not None
        batch = self.batches[event.commit.token]
        assert [operation for operation, _ in batch.deltas] == [delta.operation for delta in event.commit.deltas]
        return [rows for _, rows in batch.deltas]

    def acknowledged_events(self, history: list[Event]) -> int:
        """The length of the shortest prefix that has everything acknowledged so far."""
        known = [
            place
            for place, event in enumerate(history, 1)
            if (event.commit.token in self.acknowledged or event.commit.commit_id in self.lineages)
        ]
        return max(known, default=0)

    def assert_sound(self) -> None:
        """Nothing acknowledged was lost or seen twice, every read was a prefix, and the table is what the log says."""
        history = self.history()
        committed = Counter(event.commit.token for event in history if not event.is_restatement)
        assert set(committed.values()) <= {1}, "a token was committed twice"
        positions = [delta.position for e in history if not e.is_restatement for delta in e.commit.deltas]
        assert positions == sorted(set(positions)), "stream positions do not ascend"
        at = {e.commit.token: e.commit.last_position for e in history}
        for token, position in self.acknowledged.items():
            assert at.get(token) == position, f"{token} was acknowledged at {position}"
        assert set(self.lineages) <= {e.commit.commit_id for e in history}, "an acknowledged restatement is lost"
        log = self.simulation.catalog().log("t", ALL)
        chain = [state.version for state in log.chain()]
        for version in chain:
            state = log.state(version)
            assert state == log.state_at(version, state.tail), f"a checkpoint of {version} says something else"
        assert set(self.published) <= set(chain), "an acknowledged compaction is not in the chain"
        assert len(set(self.published)) == len(self.published), "two compactors published one version"
        holds = list(self.prefixes(history))
        assert bag(self.simulation.catalog().read("t").to_pylist()) == holds[-1], "the table is not what the log says"
        for first, last, rows in self.reads:
            assert rows in holds[first : last + 1], f"a read is none of the prefixes {first}‥{last}"
        assert_index_is_sound(self, "t")


def assert_index_is_sound(world: World, table_id: str) -> None:
    problems = [problem for each in check(world.simulation.catalog(), table_id) for problem in each.problems]
    assert not problems, problems


# --- what processes do ---------------------------------------------------------------------------------------------

Task = Callable[[DeltaStreamCatalog], Any]


@dataclass
class Role:
    """A list of tasks. A process does one after another; where it dies, the next one goes on with what is left."""

    name: str
    tasks: list[Task]
    is_bound_to_time: bool = True
    """Its files are refused, or its reads may fail, once it takes longer than the vacuum's age allows."""

    def work(self, catalog: DeltaStreamCatalog) -> None:
        while self.tasks:
            try:
                self.tasks[0](catalog)
            except (StoreError, ConflictError):
                continue  # unknown outcome, or somebody was faster: again
            self.tasks.pop(0)


def append(world: World, batch: Batch, position: int | None) -> Task:
    """Commit a batch until it is acknowledged."""

    def task(catalog: DeltaStreamCatalog) -> None:
        try:
            acknowledge(catalog, position)
        except PositionError:
            acknowledge(catalog, None)

    def acknowledge(catalog: DeltaStreamCatalog, position: int | None) -> None:
        tables = [(OperationType(operation), as_table(list(rows))) for operation, rows in batch.deltas]
        if len(tables) == 1:
            (operation, table) = tables[0]
            delta = catalog.append("t", table, None, operation, position, batch.token)
        else:
            begun_s = catalog.clock()
            paths = catalog.log("t", ALL).paths
            files = [
                (kind, [write_table(catalog.store, paths.fresh("data", ".parquet"), table, WriteOptions())])
                for kind, table in tables
            ]
            delta = catalog.commit("t", ALL, files, position, batch.token, begun_s)[-1]
        world.acknowledged[batch.token] = delta.position

    world.batches[batch.token] = batch
    return task


def as_table(rows: list[Row]) -> pa.Table:
    columns = {"k": pa.int64(), "s": pa.int64(), "v": pa.string()}
    return pa.table({name: pa.array([row[name] for row in rows], type_) for name, type_ in columns.items()})


def restate(world: World, rows: list[Row]) -> Task:
    """Restatements have different numbers of rows: by that the log tells which one it was."""
    world.restated[len(rows)] = tuple(rows)
    return lambda catalog: world.lineages.append(catalog.restate("t", as_table(rows)).lineage)


def compaction(world: World, **arguments: Any) -> Task:
    def task(catalog: DeltaStreamCatalog) -> str | None:
        begun_s = catalog.clock()
        try:
            result = compact("t", delta_catalog_client=catalog, **arguments)
        except (StoreError, ConflictError):
            raise
        except DeltaCompactError as error:
            # Whoever takes longer than the vacuum's age finds its files gone: it has lost its base.
            assert isinstance(error, NotFoundError) and catalog.clock() - begun_s > 3 * DAYS, error
            raise ConflictError(str(error)) from error
        if result.destination_table_id == "t":
            world.published += [session.version for session in result.sessions if session.version]
        return "nothing to do" if all(session.nothing_to_do for session in result.sessions) else None

    return task


def compaction_into_another_table(world: World, **arguments: Any) -> Task:
    into_d = compaction(world, destination_compacted_table_id="d", **arguments)

    def task(catalog: DeltaStreamCatalog) -> None:
        first = world.acknowledged_events(world.history())
        into_d(catalog)
        world.in_destination = max(world.in_destination, first)

    return task


def read_destination(world: World) -> Task:
    """A destination holds a prefix of its source, with all that was acknowledged before its last compaction began."""

    def task(catalog: DeltaStreamCatalog) -> None:
        begun_s, first = catalog.clock(), world.in_destination
        try:
            rows = catalog.read("d").to_pylist()
        except NotFoundError as error:
            if catalog.clock() - begun_s > 3 * DAYS:
                raise ConflictError("too slow a reader") from error
            assert first == 0, error
            return
        world.reads.append((first, len(world.history()), bag(rows)))

    return task


def rehash(buckets: int) -> Task:
    def task(catalog: DeltaStreamCatalog) -> None:
        rehash_table(catalog, "t", buckets, LocalExecutor(LOCAL))

    return task


def cleaning() -> Task:
    def task(catalog: DeltaStreamCatalog) -> None:
        for table_id in catalog.tables():
            vacuum(catalog, table_id)

    return task


def read(world: World) -> Task:
    """What is read must be a prefix that has all that was acknowledged before, and nothing that was not there yet."""

    def task(catalog: DeltaStreamCatalog) -> None:
        begun_s = catalog.clock()
        first = world.acknowledged_events(world.history())
        try:
            rows = catalog.read("t").to_pylist()
        except NotFoundError as error:
            assert catalog.clock() - begun_s > 3 * DAYS, error
            raise ConflictError("too slow a reader") from error
        world.reads.append((first, len(world.history()), bag(rows)))

    return task


# --- a schedule ----------------------------------------------------------------------------------------------------


class Schedule:
    """Steps the processes in a seeded order until all tasks are done."""

    def __init__(self, world: World, roles: list[Role], random_: random.Random, faults: int, jumps: int) -> None:
        self.world = world
        self.roles = roles
        self.random = random_
        self.faults_left = faults
        self.jumps_left = jumps
        self.actors: dict[str, Actor] = {}
        self.noticed_at = {role.name: 0 for role in roles}
        """When a process that died is started again, in steps."""

    def run(self) -> None:
        world, random_ = self.world, self.random
        try:
            for role in self.roles:
                self._start(role)
            weights = {role.name: 1.0 for role in self.roles}
            while live := [role for role in self.roles if not self.actors[role.name].done]:
                if random_.random() < 0.1:  # some stall, some race ahead
                    weights = {role.name: random_.choice([0.01, 0.3, 1.0, 10.0]) for role in self.roles}
                awake = [role for role in live if self.noticed_at[role.name] <= len(world.trace)] or live
                role = random_.choices(awake, [weights[role.name] for role in awake])[0]
                self._step(role)
                world.simulation.now_s += random_.choice([0.0, 0.0, 0.001, 0.05])
                self._jump(live)
        finally:
            world.simulation.end()

    def _start(self, role: Role) -> None:
        self.actors[role.name] = self.world.simulation.start(role.work, role.name)

    def _step(self, role: Role) -> None:
        actor, fault = self.actors[role.name], None
        commits = actor.pending is not None and actor.pending[0] == "put_if_absent" and "/stream/" in actor.pending[1]
        if self.faults_left and self.random.random() < (0.2 if commits else 0.02):
            self.faults_left -= 1
            fault = self.random.choice(list(Fault))
        what = f"{role.name}: {' '.join(actor.pending or ())}{f' ({fault.name})' if fault else ''}"
        self.world.trace.append(what)
        actor.step(fault)
        if actor.error is not None:
            raise AssertionError(f"{role.name} failed: {actor.error!r}") from actor.error
        if actor.died:
            self._start(role)
            self.noticed_at[role.name] = len(self.world.trace) + self.random.randint(0, 200)

    def _jump(self, live: list[Role]) -> None:
        """Most of a day passes, where no writer or reader is left standing in one operation for longer than allowed."""
        if not self.jumps_left or self.random.random() > 0.03:
            return
        later_s = self.world.simulation.now_s + 20 * HOURS
        bound = [self.actors[role.name] for role in live if role.is_bound_to_time]
        if all(later_s - actor.stepped_at_s < 1.4 * DAYS for actor in bound if not actor.done):
            self.jumps_left -= 1
            self.world.simulation.now_s = later_s


def destination_roles_of(world: World, random_: random.Random) -> list[Role]:
    """Two compactors into another table, and its reader."""
    roles = []
    for name in ("d1", "d2"):
        tasks = [compaction_into_another_table(world, **arguments_of(random_)) for _ in range(random_.randint(1, 3))]
        roles.append(Role(name, tasks, is_bound_to_time=False))
    return [*roles, Role("rd", [read_destination(world) for _ in range(random_.randint(1, 4))])]


def roles_of(world: World, random_: random.Random, with_vacuum: bool) -> list[Role]:
    """Two writers, two compactors, two readers, a rehash, and sometimes a restatement and a vacuum."""
    roles = []
    for writer in ("w1", "w2"):
        tasks = [append(world, batch, position) for batch, position in batches_of(writer, random_)]
        roles.append(Role(writer, tasks))
    for compactor in ("c1", "c2"):
        tasks = [compaction(world, **arguments_of(random_)) for _ in range(random_.randint(1, 3))]
        roles.append(Role(compactor, tasks, is_bound_to_time=False))
    roles.append(Role("rehash", [rehash(random_.randint(1, 4)) for _ in range(random_.randint(0, 2))]))
    if random_.random() < 0.4:
        roles.append(Role("restater", [restate(world, [row(random_, f"restated {n}") for n in range(2)])]))
    for reader in ("r1", "r2"):
        roles.append(Role(reader, [read(world) for _ in range(random_.randint(1, 4))]))
    if with_vacuum:
        roles.append(Role("vacuum", [cleaning() for _ in range(random_.randint(1, 4))]))
    return roles


def batches_of(writer: str, random_: random.Random) -> Iterator[tuple[Batch, int | None]]:
    counted = random_.random() < 0.5
    for number in range(random_.randint(1, 5)):
        token = Token(writer, number) if counted else Token(f"{writer}:{number}")
        upserts = ("upsert", tuple(row(random_, f"{token} {n}") for n in range(random_.randint(1, 3))))
        deletes = ("delete", tuple(row(random_, None) for _ in range(random_.randint(1, 2))))
        deltas = random_.choice([(upserts,), (upserts,), (deletes,), (deletes, upserts)])
        position = random_.choice([None, None, number * 10, 1_000_000_000_000 + random_.randint(0, 10_000)])
        yield Batch(token, deltas), position


def row(random_: random.Random, value: str | None) -> Row:
    return {"k": random_.randint(1, 5), "s": random_.choice([None, 0, 1, 2]), "v": value}


def arguments_of(random_: random.Random) -> dict[str, Any]:
    return {
        "hash_bucket_count": random_.choice([None, None, 2, 3]),
        "rows_per_compacted_file": random_.choice([2, 4_000_000]),
        "settings": Settings(executor="local", rows_per_round=random_.choice([None, 2, 4])),
    }


def explore(
    seed: int, with_vacuum: bool, with_destination: bool = False, log_limits: LogLimits = stream_log.LOG_LIMITS
) -> None:
    random_ = random.Random(seed)
    names = random.Random(seed)
    sort_keys = random_.choice([[], [("s", "ascending")], [("s", "descending")]])
    retention = random_.choice([None, None, 0, 20]) if sort_keys else None
    world = World(sort_keys, retention, Simulation(log_limits))
    world.simulation.catalog().create_table(
        "t", primary_keys=["k"], sort_keys=sort_keys, tombstone_retention=world.retention
    )
    roles = roles_of(world, random_, with_vacuum)
    if with_destination:
        roles += destination_roles_of(world, random_)
    faults, jumps = random_.choice([0, 3, 10]), 12 if with_vacuum else 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128), version=4))
        run(world, Schedule(world, roles, random_, faults, jumps), with_vacuum, with_destination)


def run(world: World, schedule: Schedule, with_vacuum: bool, with_destination: bool) -> None:
    try:
        schedule.run()
        world.assert_sound()
        assert world.acknowledged.keys() == world.batches.keys()
        compaction(world)(world.simulation.catalog())
        if with_destination:
            compaction_into_another_table(world)(world.simulation.catalog())
        if with_vacuum:
            world.simulation.now_s += 4 * DAYS
            cleaning()(world.simulation.catalog())
        if with_destination:
            read_destination(world)(world.simulation.catalog())
            assert world.reads[-1][0] == len(world.history())
            assert_index_is_sound(world, "d")
        world.assert_sound()
    except BaseException as error:
        error.add_note("\n".join(world.trace))
        raise


SHORT_ENTRIES = LogLimits(entry_bytes_max=1000, entries_between_checkpoints=3)
"""Bodies of entries and checkpoints, which a small log would never have."""


@pytest.mark.parametrize("seed", range(60))
def test_in_any_schedule_nothing_acknowledged_is_lost_and_every_read_is_a_prefix(seed: int) -> None:
    explore(seed, with_vacuum=False)


@pytest.mark.parametrize("seed", range(1000, 1060))
def test_in_any_schedule_a_vacuum_deletes_nothing_that_is_needed(seed: int) -> None:
    explore(seed, with_vacuum=True)


@pytest.mark.parametrize("seed", range(3000, 3050))
def test_in_any_schedule_a_destination_holds_a_prefix_of_its_source(seed: int) -> None:
    explore(seed, with_vacuum=seed % 2 == 0, with_destination=True)


@pytest.mark.parametrize("seed", range(2000, 2060))
def test_in_any_schedule_bodies_and_checkpoints_say_what_the_log_says(seed: int) -> None:
    explore(seed, with_vacuum=seed % 2 == 0, log_limits=SHORT_ENTRIES)


def test_a_checkpoint_says_what_the_log_says() -> None:
    world = two_rows_to_fold(SHORT_ENTRIES)
    folding(world)(world.simulation.catalog())
    log = world.simulation.catalog().log("t", ALL)
    for number in range(6):
        one_batch(world)(world.simulation.catalog())
        log.extend(lambda _, number=number: Fence(f"session {number}"))
        rehash(number + 2)(world.simulation.catalog())
        fresh = world.simulation.catalog().log("t", ALL)
        state = fresh.state(log.active().version)
        assert state == fresh.state_at(state.version, state.tail)
        assert len(state.fences) == number + 1
    assert len(list(world.simulation.store.list("t/checkpoints/"))) > 2
    world.assert_sound()


# --- every way in which two can meet ------------------------------------------------------------------------------


def two_rows_to_fold(log_limits: LogLimits = stream_log.LOG_LIMITS) -> World:
    """A compacted row and a delta on top of it."""
    world = World([], None, Simulation(log_limits))
    catalog = world.simulation.catalog()
    catalog.create_table("t", primary_keys=["k"])
    for number in range(2):
        upsert = ("upsert", ({"k": 1, "s": 0, "v": f"w{number}"}, {"k": 2 + number, "s": 0, "v": f"w{number}"}))
        append(world, Batch(Token("w", number), (upsert,)), number)(catalog)
        if number == 0:
            compaction(world, settings=LOCAL)(catalog)
    return world


def each_meeting(
    first: Callable[[World], Task],
    second: Callable[[World], Task],
    where: Callable[[World, Actor], bool] = lambda world, first: True,
    stops: Callable[[str, str], bool] = at_the_log,
) -> Iterator[tuple[World, Actor, Actor]]:
    """Second runs from end to end between any two operations of first with the log, or with whatever `stops` says."""
    at = 0
    while True:
        world = two_rows_to_fold()
        a = world.simulation.start(first(world), "first", stops)
        for _ in range(at):
            if not a.done:
                a.step()
        if a.done:
            assert at > 5
            return
        at += 1
        if not where(world, a):
            world.simulation.end()
            continue
        b = world.simulation.start(second(world), "second", at_the_log)
        while not b.done:
            b.step()
        while not a.done:
            a.step()
        yield world, a, b


def one_batch(world: World) -> Task:
    return append(world, Batch(Token("late"), (("delete", ({"k": 1, "s": None, "v": None},)),)), None)


def folding(world: World) -> Task:
    return compaction(world, settings=LOCAL)


def folding_otherwise(world: World) -> Task:
    return compaction(world, settings=LOCAL, hash_bucket_count=2, rows_per_compacted_file=1)


def rehashing(world: World) -> Task:
    return rehash(3)


def restating(world: World) -> Task:
    return restate(world, [{"k": 7, "s": 0, "v": "restated"}])


def cleaning_days_later(world: World) -> Task:
    def task(catalog: DeltaStreamCatalog) -> None:
        world.simulation.now_s += 4 * DAYS
        vacuum(catalog, "t")

    return task


@pytest.mark.parametrize("compacting", [folding, folding_otherwise])
def test_a_writer_may_commit_between_any_two_operations_of_a_compaction(compacting: Callable[[World], Task]) -> None:
    for world, compactor, writer in each_meeting(compacting, one_batch):
        assert compactor.error is None and writer.error is None
        assert len(world.published) == 2
        world.assert_sound()


def test_a_compaction_may_publish_between_any_two_operations_of_a_writer() -> None:
    for world, writer, compactor in each_meeting(one_batch, folding):
        assert compactor.error is None and writer.error is None
        assert Token("late") in world.acknowledged and len(world.published) == 2
        world.assert_sound()


@pytest.mark.parametrize("other", [folding, folding_otherwise], ids=["same arguments", "other arguments"])
def test_of_two_compactions_that_meet_anywhere_exactly_one_publishes(other: Callable[[World], Task]) -> None:
    conflicts = 0
    for world, overtaken, overtaking in each_meeting(folding, other):
        assert overtaking.error is None
        assert len(world.published) == 2
        if overtaken.error is not None:
            assert isinstance(overtaken.error, ConflictError)
            conflicts += 1
        else:  # one of them came before the other had looked
            assert "nothing to do" in (overtaken.result, overtaking.result)
        world.assert_sound()
    assert conflicts > 5


@pytest.mark.parametrize("pace", [1, 2, 3])
def test_of_two_compactions_that_run_side_by_side_exactly_one_publishes(pace: int) -> None:
    for lead in range(0, 30, 3):
        world = two_rows_to_fold()
        a = world.simulation.start(folding(world), stops=at_the_log)
        b = world.simulation.start(folding(world), stops=at_the_log)
        steps = [a] * lead + ([b] * pace + [a]) * 60
        for actor in [*steps, *[a] * 60, *[b] * 60]:
            if not actor.done:
                actor.step()
        errors = [actor.error for actor in (a, b) if actor.error is not None]
        assert [type(error) for error in errors] in ([ConflictError], []), errors
        assert errors or "nothing to do" in (a.result, b.result)
        assert len(world.published) == 2
        world.assert_sound()


@pytest.mark.parametrize("compacting", [folding, folding_otherwise])
def test_an_index_may_be_rehashed_between_any_two_operations_of_a_compaction(
    compacting: Callable[[World], Task],
) -> None:
    for world, compactor, rehasher in each_meeting(compacting, rehashing):
        assert compactor.error is None and rehasher.error is None
        world.assert_sound()


def test_a_compaction_may_publish_between_any_two_operations_of_a_rehash() -> None:
    for world, rehasher, compactor in each_meeting(rehashing, folding):
        assert compactor.error is None
        assert rehasher.error is None or isinstance(rehasher.error, ConflictError)
        world.assert_sound()


@pytest.mark.parametrize("compacting", [folding, folding_otherwise])
def test_a_restatement_that_meets_a_compaction_anywhere_wins_or_loses_whole(
    compacting: Callable[[World], Task],
) -> None:
    for pair in ((compacting, restating), (restating, compacting)):
        for world, overtaken, overtaking in each_meeting(*pair):
            assert overtaking.error is None
            assert overtaken.error is None or isinstance(overtaken.error, ConflictError)
            world.assert_sound()


@pytest.mark.parametrize("compacting", [folding, folding_otherwise])
def test_a_vacuum_days_later_between_any_two_operations_of_a_compaction_loses_nothing(
    compacting: Callable[[World], Task],
) -> None:
    for world, compactor, vacuuming in each_meeting(compacting, cleaning_days_later):
        assert vacuuming.error is None
        assert compactor.error is None or isinstance(compactor.error, ConflictError), compactor.error
        world.assert_sound()
        vacuum(world.simulation.catalog(), "t")
        folding(world)(world.simulation.catalog())
        world.assert_sound()


@pytest.mark.parametrize("work", [one_batch, rehashing, restating])
def test_a_vacuum_days_later_between_any_two_operations_of_a_writer_loses_nothing(
    work: Callable[[World], Task],
) -> None:
    refused = 0
    for world, late, vacuuming in each_meeting(work, cleaning_days_later, unless_it_commits_now):
        assert vacuuming.error is None
        assert late.error is None or isinstance(late.error, ConflictError), late.error
        refused += late.error is not None
        world.assert_sound()
    assert refused


def test_a_compaction_and_a_vacuum_between_any_two_operations_of_a_reader_leave_it_its_files() -> None:
    def a_year_later(world: World) -> Task:
        world.simulation.now_s += 365 * DAYS
        return read(world)

    def fold_and_clean(world: World) -> Task:
        def task(catalog: DeltaStreamCatalog) -> None:
            folding_otherwise(world)(catalog)
            world.simulation.now_s += 60
            vacuum(catalog, "t")

        return task

    for world, reader, other in each_meeting(a_year_later, fold_and_clean, stops=everywhere):
        assert reader.error is None and other.error is None
        world.assert_sound()


def unless_it_commits_now(world: World, writer: Actor) -> bool:
    """A writer looks at the age of its files before it commits: that one put may not take days."""
    active = world.simulation.catalog().state("t", ALL).version
    assert writer.pending is not None
    return writer.pending[0] != "put_if_absent" or f"/stream/{active}/" not in writer.pending[1]


@pytest.mark.parametrize("arguments", [folding, folding_otherwise])
def test_a_vacuum_that_spares_a_live_session_spares_what_an_older_attempt_at_it_has_written(
    arguments: Callable[[World], Task],
) -> None:
    world = two_rows_to_fold(LogLimits(entry_bytes_max=100))  # every attempt writes bodies of its own
    old = world.simulation.start(arguments(world))
    old.run_to("put_if_absent", f"t/stream/{world.simulation.catalog().state('t', ALL).version}/")  # its seal
    world.simulation.now_s += 4 * DAYS
    young = world.simulation.start(arguments(world))
    young.run_to("put_if_absent", f"t/stream/{world.simulation.catalog().state('t', ALL).version}/")
    vacuum(world.simulation.catalog(), "t")
    for attempt in (old, young):
        while not attempt.done:
            attempt.step()
    assert (old.error is None) != (young.error is None)
    world.assert_sound()
    folding(world)(world.simulation.catalog())
    world.assert_sound()
