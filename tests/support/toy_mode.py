"""The smallest possible mode: `copy` writes each data file again under another name."""

from dataclasses import dataclass, replace
from functools import partial

from deltacompact.base.options import option
from deltacompact.iceberg.commit.proposal import REPLACE, Proposal, addition
from deltacompact.iceberg.deletes.matching import Deletes, FileScanTask
from deltacompact.iceberg.table import locations
from deltacompact.iceberg_modes.journal.journal import WrittenGroup, name_of_files
from deltacompact.iceberg_modes.mode import Mode
from deltacompact.iceberg_modes.options import WHOLE, chosen_values, stored_options
from deltacompact.iceberg_modes.plan import ModePlan, ScanTaskGroup
from deltacompact.iceberg_modes.plan_envelope import all_input_paths, enveloped, groups_document, input_paths, opened
from deltacompact.iceberg_modes.result import ModeResult
from deltacompact.iceberg_modes.steps import Steps, Work


@dataclass(frozen=True)
class CopyOptions:
    most: int | None = option("most-files", WHOLE, None, "most files of a run", says="all")


@dataclass(frozen=True)
class CopyPlan(ModePlan):
    groups: tuple[ScanTaskGroup, ...]
    mode = "copy"
    nothing_to_do = None


def plan_copies(state, options, paths=None):
    entries = [entry for entry in state.data if paths is None or entry.file.path in paths]
    tasks = [FileScanTask(entry, Deletes()) for entry in entries[: options.most]]
    return CopyPlan(*state.heading, options, tuple(ScanTaskGroup(number, (task,)) for number, task in enumerate(tasks)))


def document(plan):
    return enveloped(plan, groups_document(plan.groups, lambda group: {}, lambda source: {}))


def approved(text, state, left, done):
    body = opened(text, "copy", state)
    return plan_copies(state, stored_options(CopyOptions, body["options"]), all_input_paths(body))


class Copies(tuple):
    paths = property(lambda self: frozenset(file.path for _, file in self))
    group_count = property(len)
    marked = frozenset()


def proposal(copies, state):
    live = {entry.file.path: entry for entry in state.data}
    there = Copies((live[path], file) for path, file in copies if path in live)
    added = tuple(addition(file, entry.sequence_number) for entry, file in there)
    return Proposal(REPLACE, tuple(entry for entry, _ in there), added, there)


def resumption(dead, records, state):
    [paths] = zip(*(input_paths(dead.body["groups"][record.number]) for record in records), strict=True)
    return proposal(zip(paths, (record.outputs[0] for record in records), strict=True), state)


class Copying(Work):
    def written(self, groups, session, folder):
        for group in groups:
            path = f"{self.table.metadata.data_folder}/{name_of_files(session)}{group.number}.parquet"
            file = group.inputs[0].entry.file
            locations.put(self.table.store, path, locations.fetched(self.table.store, file.path))
            yield [(group, replace(file, path=path))]

    def record(self, written):
        return WrittenGroup(written[0].number, (written[1],))

    def propose(self, groups, written):
        return partial(proposal, [(*group.paths, file) for group, file in written])


STEPS = Steps(
    plan=lambda call, state, left: plan_copies(state, call.options),
    approved=approved,
    document=document,
    result=lambda call, plan: ModeResult(plan.table_id, call.branch),
    work=Copying,
    resume=lambda resuming, plan: resumption,
)


def copy_options(chosen, properties):
    return CopyOptions(**chosen_values(CopyOptions, chosen))


COPY = Mode("copy", "copying", "copy files", CopyOptions, copy_options, lambda: STEPS)
