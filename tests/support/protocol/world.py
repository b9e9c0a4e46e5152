"""A table and what was asked of it. Its log tells in which order everything took effect.

log         w1:0 · restatement · w2:0 · w1:1          everything that took effect, each once
prefixes    {} · rows of w1:0 · …                     what the table holds after none, one, two, … of them
a read      began after w1:0 was acknowledged         must be one of the prefixes from there on
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

from deltacompact.base.model import Commit, Partition, Token
from deltacompact.delta_streams.paths import GENESIS

ALL = Partition()
Bag = Counter[Any]


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
        """What the table holds after none, one, two, … of the events."""
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
        """The length of the shortest prefix that has everything acknowledged so far."""
        known = [
            length
            for length, event in enumerate(history, 1)
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
    assert problems(world.simulation.catalog(), table_id) == []
