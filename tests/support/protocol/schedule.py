"""Steps processes in a seeded order. The seed says who steps next, which operation fails, and when most of a day
passes.

w1: put_if_absent t/stream/0/…01.json (LOST)      the put happened, but the writer got an error
c1: get t/stream/0/…01.json                       a compactor sees it
w1: get t/stream/0/…01.json                       the writer reads who won the slot
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from oracle import Row
from simulation import Actor, Fault

from deltacompact import Settings
from deltacompact.base.tokens import Token

from .tasks import (
    DAYS,
    HOURS,
    Role,
    append,
    cleaning,
    compaction,
    compaction_into_another_table,
    read,
    read_destination,
    rehash,
    restate,
)
from .world import Batch, World


class Schedule:
    """Steps the processes in a seeded order until all tasks are done."""

    def __init__(
        self, world: World, roles: list[Role], random_: random.Random, faults: int, jumps: int, clocks: int = 0
    ) -> None:
        self.world = world
        self.roles = roles
        self.random = random_
        self.faults_left = faults
        self.jumps_left = jumps
        self.clocks_left = clocks
        self.actors: dict[str, Actor] = {}
        self.noticed_at = {role.name: 0 for role in roles}
        """At which step each dead process starts again."""

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
                self._arrive()
                self._set_clocks(live)
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

    def _arrive(self) -> None:
        """Let an old request, which the store has carried out before, reach the store once more."""
        if (late := self.world.simulation.under_way) and self.random.random() < 0.02:
            self.world.trace.append("a request arrives once more")
            late.pop(self.random.randrange(len(late)))()

    def _set_clocks(self, live: list[Role]) -> None:
        """Set a process's clock ahead or back: it differs from the store's by at most half a day."""
        if self.clocks_left and self.random.random() < 0.03:
            self.clocks_left -= 1
            role = self.random.choice(live)
            self.actors[role.name].ahead_s = self.random.choice([-10, -1, 0, 1, 10]) * HOURS
            self.world.trace.append(f"{role.name}: its clock is {self.actors[role.name].ahead_s / HOURS:g} h ahead")

    def _jump(self, live: list[Role]) -> None:
        """Let most of a day pass, if no writer or reader would then wait in one operation for longer than allowed."""
        if not self.jumps_left or self.random.random() > 0.03:
            return
        later_s = self.world.simulation.now_s + 20 * HOURS
        bound = [self.actors[role.name] for role in live if role.is_bound_to_time]
        if all(later_s - actor.stepped_at_s < 1.4 * DAYS for actor in bound if not actor.done):
            self.jumps_left -= 1
            self.world.simulation.now_s = later_s


def destination_roles_of(world: World, random_: random.Random) -> list[Role]:
    """Two compactors into another table, and a reader of that table."""
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
