"""What upserts remember, against a model that knows the commit of every row: thousands of histories, nothing is stored.

A model table has branches, snapshots that expire, properties, and files with rows (key, commit). Its writers append,
upsert, rewrite, expire, roll back and make branches; some of them are others. An upsert may compare again, and it may
refuse. What it, or a rewrite, must never do: of the rows of one key, leave another one than the newest.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field, replace

import hand_made_tables as hand
import pyarrow as pa
import pytest
from budgets import examples
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from deltacompact.base.errors import InputError
from deltacompact.base.numbers import Ordinal
from deltacompact.base.table_keys import SortKey
from deltacompact.iceberg.commit.proposal import REPLACE, Proposal
from deltacompact.iceberg.deletes.matching import FileScanTask
from deltacompact.iceberg.marks.marking import Mark
from deltacompact.iceberg.settled import newest
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.metadata import MAIN, SESSION, Ref, Snapshot
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.iceberg_modes.rewrite.plan import plan_rewrite
from deltacompact.iceberg_modes.rewrite.proposals import ProposeRewrite, Rewritten
from deltacompact.iceberg_modes.upsert.comparing import ComparedFile
from deltacompact.iceberg_modes.upsert.options import UpsertOptions
from deltacompact.iceberg_modes.upsert.plan import plan_upsert
from deltacompact.iceberg_modes.upsert.proposals import MarkedSpace, ProposeMemory, ProposeUpsert
from deltacompact.iceberg_modes.upsert.validation import compared_spaces

COLUMNS = pa.schema(
    [
        pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})
        for number, name in enumerate(["id", "commit", "day"], 1)
    ]
)
HISTORIES, STEPS = 400, 30


@dataclass
class Table:
    """Files and rows never change; snapshots list files."""

    snapshots: dict = field(default_factory=dict)
    entries: dict = field(default_factory=dict)
    refs: dict = field(default_factory=dict)
    properties: dict = field(default_factory=dict)
    rows: dict = field(default_factory=dict)
    marks: dict = field(default_factory=dict)
    sequence: int = 0
    commits: itertools.count = field(default_factory=lambda: itertools.count(1))
    names: itertools.count = field(default_factory=itertools.count)

    def state(self, branch=MAIN) -> TableState:
        refs = {name: Ref(number, "branch") for name, number in self.refs.items()}
        head = self.snapshots.get(self.refs.get(branch))
        found = self.entries.get(self.refs.get(branch), ())
        made = hand.state(sequence=self.sequence)
        metadata = replace(
            made.metadata,
            schema=COLUMNS,
            schema_json='{"identifier-field-ids": [1]}',
            properties=dict(self.properties),
            refs=refs,
            snapshots=dict(self.snapshots),
            last_sequence_number=self.sequence,
        )
        data = tuple(entry for entry in found if entry.file.content is Content.DATA)
        deletes = tuple(entry for entry in found if entry.file.content is not Content.DATA)
        return TableState(metadata, branch, head, (), data, deletes)

    def dead(self, entry, state) -> set[int]:
        """The positions of a data file that deletes of the branch name."""
        newer = (delete.file.path for delete in state.deletes if delete.sequence >= entry.sequence)
        return set().union(*(self.marks[path].get(entry.file.path, ()) for path in newer))

    def live(self, entry, state):
        dead = self.dead(entry, state)
        return [row for position, row in enumerate(self.rows[entry.file.path]) if position not in dead]

    def visible(self, branch=MAIN):
        state = self.state(branch)
        return sorted(row for entry in state.data for row in self.live(entry, state))

    def view(self, branch=MAIN):
        """Of each key the newest commit."""
        return dict(self.visible(branch))  # in the order of keys and commits

    def named(self, chance) -> str:
        """A path. Its place among others says nothing."""
        return f"{chance.choice('amz')}{next(self.names)}"

    def file(self, path, day, rows):
        self.rows[path] = rows
        return hand.data(path, None, day, rows=len(rows)).file

    def commit(self, branch, proposal, is_ours=True) -> Snapshot:
        """As `commit/snapshots.py` and the catalog do it."""
        state = self.state(branch)
        self.sequence += 1
        number = 1_000_000 + self.sequence * 7919 % 999_983
        removed = {entry.file.key for entry in proposal.removed}
        added = [
            replace(
                entry,
                snapshot_id=number,
                sequence_number=entry.sequence_number or self.sequence,
                file_sequence_number=self.sequence,
            )
            for entry in proposal.added
        ]
        counts = {
            "added-data-files": sum(entry.file.content is Content.DATA for entry in added),
            "deleted-data-files": sum(entry.file.content is Content.DATA for entry in proposal.removed),
        }
        summary = {"operation": proposal.operation} | {name: str(count) for name, count in counts.items() if count}
        if is_ours:
            known = proposal.settles or newest(state)
            summary |= {SESSION: "s"} | (known.summary if known else {}) | dict(proposal.summary)
            self.properties |= known.record(number, state) if known else {}
        parent = state.snapshot.snapshot_id if state.snapshot else None
        made = Snapshot(number, parent, self.sequence, self.sequence, f"snap-{number}", summary=summary)
        self.snapshots[number], self.refs[branch] = made, number
        kept = [entry for entry in (*state.data, *state.deletes) if entry.file.key not in removed]
        self.entries[number] = (*kept, *added)
        return made


class Histories(RuleBasedStateMachine):
    """Random histories. `refused` and `settled` count, so that a machine which refuses everything is noticed."""

    done: dict[str, int]

    @initialize(chance=st.randoms(use_true_random=False))
    def begins(self, chance):
        self.table, self.chance = Table(), chance
        self.waiting = None
        self.append(2)

    @property
    def branches(self):
        return sorted(self.table.refs)

    def branch(self):
        return self.chance.choice(self.branches)

    # Writers

    @rule(keys=st.integers(1, 4))
    def append(self, keys):
        """Each key once in a commit, in any partition."""
        branch = self.branch() if self.table.refs else MAIN
        commit = next(self.table.commits)
        rows = {}
        for key in self.chance.sample(range(5), keys):
            rows.setdefault(self.chance.choice([1, 2]), []).append((key, commit))
        files = [self.table.file(self.table.named(self.chance), day, found) for day, found in rows.items()]
        added = [hand.data(file.path, None, file.partition[0], rows=file.rows) for file in files]
        self.table.commit(branch, Proposal("append", (), tuple(added), None), is_ours=False)

    @rule(several=st.booleans())
    def others_rewrite(self, several):
        """Files of a partition become one, with the number of the head: as Spark's `rewrite_data_files` does it."""
        branch = self.branch()
        state = self.table.state(branch)
        day = self.chance.choice([1, 2])
        inputs = [entry for entry in state.data if entry.file.partition == (day,)]
        assume(inputs)
        inputs = inputs if several else self.chance.sample(inputs, 1)
        rows = sorted((row for entry in inputs for row in self.table.live(entry, state)), key=lambda row: row[1])
        file = self.table.file(self.table.named(self.chance), day, rows)
        added = hand.data(file.path, state.sequence_number, day, rows=len(rows))
        self.table.commit(branch, Proposal(REPLACE, tuple(inputs), (added,), None), is_ours=False)

    @rule(all_of_them=st.booleans())
    def expire(self, all_of_them):
        unnamed = sorted(set(self.table.snapshots) - set(self.table.refs.values()))
        gone = unnamed if all_of_them else [number for number in unnamed if self.chance.random() < 0.5]
        for number in gone:
            del self.table.snapshots[number]

    @rule()
    def roll_back(self):
        """To any snapshot that is left, of another branch too."""
        self.table.refs[self.branch()] = self.chance.choice(sorted(self.table.snapshots))

    @rule()
    def make_a_branch(self):
        self.table.refs["other"] = self.chance.choice(sorted(self.table.snapshots))

    # Ours

    def options(self, branch):
        """Row order is trusted only where it is right."""
        state = self.table.state(branch)
        is_right = all(rows == sorted(rows, key=lambda row: row[1]) for rows in self.files_of(state))
        sort = (SortKey("commit"),) if self.chance.random() < 0.3 else ()
        return UpsertOptions(sort_columns=sort, trusts_row_order=is_right and self.chance.random() < 0.3)

    def files_of(self, state):
        return [self.table.rows[entry.file.path] for entry in state.data]

    def prepared_upsert(self, branch):
        """What a run proposes of the branch as it is now. None: it refuses."""
        state = self.table.state(branch)
        try:
            plan = plan_upsert(state, self.options(branch))
        except InputError as error:
            assert "replaced other files before their rows were compared" in str(error)
            self.done["refused"] += 1
            return None
        if not plan.inputs:
            return ProposeMemory(plan.recorded)
        ranked = []
        for number, source in enumerate(plan.inputs):
            dead = self.table.dead(source.entry, state)
            for position, (key, commit) in enumerate(self.table.rows[source.entry.file.path]):
                if position not in dead:
                    sort = (source.entry.sequence, commit) if plan.columns.sort else ()
                    ranked.append((sort, number, position, key))
        winners = {key: (number, position) for _, number, position, key in sorted(ranked)}
        dead, guards = {}, set()
        for _, number, position, key in ranked:
            if winners[key] != (number, position):
                dead.setdefault(number, set()).add(position)
                guards.add(winners[key][0])
        files = [
            ComparedFile(Ordinal(number), 0, len(dead.get(number, ())), 0, number in guards, None)
            for number in range(len(plan.inputs))
        ]
        marked = []
        for space in compared_spaces(plan, files):
            marks = []
            for task in space.inputs:
                if task.file.dead:
                    path = task.task.entry.file.path
                    name = self.table.named(self.chance)
                    self.table.marks[name] = {path: dead[task.file.ordinal]}
                    file = hand.positions(name, 0, task.task.entry.file.partition[0], of=[path]).file
                    marks.append(Mark(file, (FileScanTask(task.task.entry, task.task.deletes),), 1))
            marked.append(MarkedSpace(space, tuple(marks)))
        return ProposeUpsert(plan, marked)

    def prepared_rewrite(self, branch, several):
        state = self.table.state(branch)
        chosen = {"rewrite-all": True} | ({"max-file-group-input-files": 2} if several else {})
        plan = plan_rewrite(state, rewrite_options(chosen, {}))
        rewritten = []
        for group in plan.groups:
            rows = [row for source in group.inputs for row in self.table.live(source.entry, state)]
            cut = self.chance.randint(0, len(rows))
            parts = [part for part in (rows[:cut], rows[cut:]) if part]
            outputs = [self.table.file(self.table.named(self.chance), group.partition[0], part) for part in parts]
            rewritten.append(Rewritten(group, tuple(outputs), 0, 0))
        if several:  # partial progress
            return [ProposeRewrite(plan, [group]) for group in rewritten]
        return [ProposeRewrite(plan, rewritten)] if rewritten else []

    def land(self, branch, propose):
        before = self.table.view(branch)
        visible = self.table.visible(branch)
        proposal = propose(self.table.state(branch))
        if not proposal.is_empty:
            self.table.commit(branch, proposal)
        assert self.table.view(branch) == before
        if isinstance(propose, ProposeRewrite):
            assert self.table.visible(branch) == visible

    @rule()
    def upsert(self):
        branch = self.branch()
        if (propose := self.prepared_upsert(branch)) is not None:
            self.land(branch, propose)
            assert len(self.table.visible(branch)) == len(self.table.view(branch))
            self.done["settled"] += 1

    @rule(several=st.booleans())
    def rewrite(self, several):
        branch = self.branch()
        for propose in self.prepared_rewrite(branch, several):
            self.land(branch, propose)

    @rule(upserts=st.booleans())
    def plans(self, upserts):
        """A run that commits later, whatever happens until then."""
        branch = self.branch()
        proposes = [self.prepared_upsert(branch)] if upserts else self.prepared_rewrite(branch, True)
        self.waiting = branch, [propose for propose in proposes if propose is not None]

    @rule()
    def commits_what_it_planned(self):
        if self.waiting is not None and self.waiting[0] in self.table.refs:
            branch, proposes = self.waiting
            for propose in proposes:
                self.land(branch, propose)
        self.waiting = None

    @invariant()
    def memory_is_true(self):
        """Of the rows that a branch is believed to have compared, no two have one key."""
        for branch in self.branches if hasattr(self, "table") else ():
            state = self.table.state(branch)
            known = newest(state)
            if known is not None:
                keys = [
                    key
                    for entry in state.data
                    if entry.sequence <= known.through
                    for key, _ in self.table.live(entry, state)
                ]
                assert len(keys) == len(set(keys)), branch


@pytest.mark.slow
def test_whatever_was_rewritten_expired_and_rolled_back_the_newest_row_of_each_key_wins():
    Histories.done = {"refused": 0, "settled": 0}
    run_state_machine_as_test(
        Histories, settings=settings(max_examples=examples(HISTORIES), stateful_step_count=STEPS, deadline=None)
    )
    assert Histories.done["settled"] > examples(HISTORIES) / 4  # it does not just refuse; about one a history


@pytest.fixture
def machine():
    Histories.done = {"refused": 0, "settled": 0}
    found = Histories()
    found.options = lambda branch: UpsertOptions()
    found.begins(random.Random(0))
    return found


@pytest.mark.slow
def test_the_docs_order_with_appends_in_between_is_never_refused(machine):
    """Upsert, an append, rewrite, expiry of everything but the head; a hundred times."""
    for round_ in range(100):
        machine.append(round_ % 4 + 1)
        machine.upsert()
        machine.append(1)
        machine.rewrite(round_ % 2 == 0)
        machine.expire(True)
    machine.upsert()
    assert machine.done == {"refused": 0, "settled": 101}
