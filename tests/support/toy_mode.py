"""A mode of its own, as small as one can be: `copy` writes each data file again under another name."""

from dataclasses import dataclass, replace
from functools import partial

from deltacompact.iceberg.commit.proposal import REPLACE, Proposal, addition
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.content_files import Entry
from deltacompact.iceberg_modes.expected import spread
from deltacompact.iceberg_modes.journal.journal import WrittenGroup, name_of_files
from deltacompact.iceberg_modes.mode import Mode
from deltacompact.iceberg_modes.options import WHOLE, chosen_values, option
from deltacompact.iceberg_modes.plan import ModePlan
from deltacompact.iceberg_modes.plan_envelope import enveloped, input_paths, opened
from deltacompact.iceberg_modes.result import ModeResult
from deltacompact.iceberg_modes.steps import Steps, Work
from deltacompact.planning.throughput import FIRST_RATES


@dataclass(frozen=True)
class CopyOptions:
    most: int | None = option("most-files", WHOLE, None, "most files of a run", says="all")


@dataclass(frozen=True)
class CopyGroup:
    number: int
    entry: Entry
    rows = bytes = 1


@dataclass(frozen=True)
class CopyPlan(ModePlan):
    groups: tuple[CopyGroup, ...]
    mode = "copy"
    nothing_to_do = None


def plan_copies(state, options, paths=None):
    entries = [entry for entry in state.data if paths is None or entry.file.path in paths]
    return CopyPlan(*state.heading, options, tuple(CopyGroup(*one) for one in enumerate(entries[: options.most])))


def document(plan):
    return enveloped(plan, {"groups": [{"inputs": [{"path": group.entry.file.path}]} for group in plan.groups]})


def approved(text, state, left, done):
    body = opened(text, "copy", state)
    return plan_copies(state, CopyOptions(**body["options"]), frozenset().union(*map(input_paths, body["groups"])))


class Copies(tuple):
    paths = property(lambda self: frozenset(file.path for _, file in self))
    group_count = property(len)


def proposal(copies, state):
    live = {entry.file.path: entry for entry in state.data}
    there = Copies((live[path], file) for path, file in copies if path in live)
    added = tuple(addition(file, entry.sequence_number) for entry, file in there)
    return Proposal(REPLACE, tuple(entry for entry, _ in there), added, there)


def resumption(dead, records, state):
    [paths] = zip(*(input_paths(dead.body["groups"][one.number]) for one in records), strict=True)
    return proposal(zip(paths, (one.outputs[0] for one in records), strict=True), state)


class CopyResult(ModeResult):
    def count(self, done):
        self.snapshots.append(done.snapshot.snapshot_id)


class Copying(Work):
    given_up = again = None

    def written(self, groups, session, folder):
        for group in groups:
            path = f"{self.table.metadata.data_folder}/{name_of_files(session)}{group.number}.parquet"
            locations.put(self.table.store, path, locations.fetched(self.table.store, group.entry.file.path))
            yield [(group, replace(group.entry.file, path=path))]

    def record(self, written):
        return WrittenGroup(written[0].number, (written[1],))

    def propose(self, groups, written):
        return partial(proposal, [(group.entry.file.path, file) for group, file in written])

    def count(self, done, groups):
        self.result.count(done)


STEPS = Steps(
    plan=lambda call, state, left: plan_copies(state, call.options),
    approved=approved,
    document=document,
    result=lambda call, plan: CopyResult(plan.table_id, call.branch),
    work=Copying,
    resume=lambda dead, plan: resumption,
    expected=lambda plan, capacity: spread([1.0], 0.0, 1, capacity, FIRST_RATES),
    plan_lines=lambda plan: [f"copy {len(plan.groups)} files"],
    result_lines=lambda result: [f"snapshots {result.snapshots}"],
)


def copy_options(chosen, properties):
    return CopyOptions(**chosen_values(CopyOptions, chosen))


COPY = Mode("copy", "copying", "copy files", CopyOptions, copy_options, lambda: STEPS)
