"""A table and the requests to it. The table's log says in which order they took effect.

log         w1:0 · restatement · w2:0 · w1:1          every request that took effect, once
prefixes    {} · rows of w1:0 · …                     the table's rows after none, one, two, … of them
a read      began after w1:0 was acknowledged         must equal a prefix that has w1:0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from columns import bag
from oracle import Oracle, Row
from simulation import Simulation
from tables import problems

from deltacompact.base.deltas import Commit
from deltacompact.base.model import Partition
from deltacompact.base.tokens import Token
from deltacompact.delta_streams.paths import GENESIS

ALL = Partition()
Bag = Counter[Any]


@dataclass(frozen=True)
class Batch:
    """The deltas that a writer commits together, under one token."""

    token: Token
    deltas: tuple[tuple[str, tuple[Row, ...]], ...]


@dataclass(frozen=True)
class Event:
    """A commit that took effect. A restatement replaced all rows but those of the commits in `carried`."""

    commit: Commit
    carried: frozenset[str] | None = None

    @property
    def is_restatement(self) -> bool:
        return self.carried is not None


@dataclass
class World:
    """The simulation, the requests to the table, and their acknowledgements."""

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
    """How many events the destination must have at least, by the acknowledged compactions into it."""
    trace: list[str] = field(default_factory=list)

    def history(self) -> list[Event]:
        """Every event that took effect, once and in order. Carried commits must be the last of the parent's commits."""
        events: list[Event] = []
        seen: set[str] = set()
        parent: tuple[str, ...] = ()
        lineage = GENESIS
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
        """The table's rows after none, one, two, … of the events."""
        for length in range(len(history) + 1):
            oracle = Oracle(["k"], self.sort_keys, self.retention)
            kept: list[Event] = []
            for event in history[:length]:
                if event.carried is not None:
                    kept = [event, *(other for other in kept if other.commit.commit_id in event.carried)]
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
        """The length of the shortest prefix with all events that were acknowledged so far."""
        known = [
            length
            for length, event in enumerate(history, 1)
            if (event.commit.token in self.acknowledged or event.commit.commit_id in self.lineages)
        ]
        return max(known, default=0)

    def assert_sound(self) -> None:
        """No acknowledged commit is lost or doubled, every read was a prefix, and the table's rows are the log's."""
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
    assert problems(world.simulation.catalog(), table_id) == []
