"""Looks at tables and submits job runs, by policies. Any number of watchers may share a state.

for each table of the policies
    statistics     its partitions' logs; the manifests of a branch of an Iceberg table
    history        what was submitted, what became of it, which job runs are open, whoever asked for them
    decisions      policy by policy: the first one that wants to submit a partition does
    submissions    a slot in the table's log, then a document in the queue
    kept           watch-decisions/….json: every decision with its reason, also the decision to wait
then for one table, if the policies ask for it
    orphans        bytes that upkeep would delete
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltacompact import DeltaStreamCatalog
from deltacompact.base.errors import CorruptionError, DeltaCompactError, NotFoundError
from deltacompact.base.model import ICEBERG, partition_text
from deltacompact.base.partitions import side_by_side
from deltacompact.base.wording import one_line
from deltacompact.catalog.opening import is_iceberg_catalog, open_catalog
from deltacompact.storage.opening import open_store
from sessions.base.clock import StoreClock
from sessions.base.ids import session_id
from sessions.base.model import JobRun
from sessions.base.said_once import SaidOnce
from sessions.base.settings import READ_AT_ONCE
from sessions.documents.instruction import PARTITIONS_MAX, values_of
from sessions.documents.streams import MAIN, NamedStreams, branch_of
from sessions.metrics.tables import TableSizes, TablesSeen, total
from sessions.queues.queue import Queue
from sessions.records.decisions import KEPT_AGAIN_S, keep_again, keep_decisions
from sessions.records.state_store import StateStore
from sessions.watch.evaluate import Decision, TriggerAction, TriggerHistory, TriggerReason, evaluate
from sessions.watch.orphans import OrphanCounts, orphan_bytes
from sessions.watch.policy import Policies, Policy
from sessions.watch.statistics import Statistics, branch_statistics, statistics_of
from sessions.watch.submissions import Ended, Submission, Submissions, SubmittedPartition, batches

if TYPE_CHECKING:  # importing PyIceberg takes a second
    from deltacompact.catalog.iceberg import IcebergCatalog

_LOG = logging.getLogger("sessions")
_HEAR_EVERY_S = 3600.0
_TEXTS_AGAIN_S = 300.0
"""Texts of decisions tell seconds and counts that differ in each look. They are written again after this time."""
_SENT_AGAIN_AFTER_S = 3600.0
"""If no dispatcher has accepted a document after so long, it is sent again."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What one policy decided about one partition, and the job run it submitted."""

    table: str
    partition: dict[str, str | None]
    policy: str
    decision: Decision
    job_run_id: str | None = None

    @property
    def outcome(self) -> tuple[TriggerAction, TriggerReason, str | None]:
        """What was decided, without its text."""
        return self.decision.action, self.decision.reason, self.job_run_id

    def document(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "partition": self.partition,
            "policy": self.policy,
            "action": self.decision.action.value,
            "reason": self.decision.reason.value,
            "text": self.decision.text,
            "job_run_id": self.job_run_id,
        }


class Watcher:
    """`look` does one round over all tables. `seen` is what the latest one found, also for other threads.

    `clock`: default: that of the state's store.
    """

    def __init__(
        self,
        policies: Policies,
        state: StateStore,
        queue: Queue,
        *,
        clock: Callable[[], float] | None = None,
        open_catalog: Callable[[str], DeltaStreamCatalog | IcebergCatalog] = open_catalog,
    ) -> None:
        self._state = state
        self._queue = queue
        self._store_clock = StoreClock()
        self._heard_s = -_HEAR_EVERY_S
        self.clock = clock or self._store_clock
        self._open_catalog = open_catalog
        self.failed: dict[tuple[str, str], DeltaCompactError] = {}
        """The errors of the last look, by catalog and table."""
        self._under_way: list[JobRun] | None = None
        self.seen = TablesSeen()
        self._tables: dict[tuple[str, str, str | None, str | None], _WatchedTable] = {}
        self._every_s = policies.every
        for policy in policies.expanded():
            named = (policy.source_table_id, policy.branch, policy.destination)
            key = (_normal(policy.catalog), *named)  # two spellings of a catalog would overwrite each other's decisions
            if key not in self._tables:
                self._tables[key] = _WatchedTable(policy.catalog, *named, self)
            self._tables[key].policies.append(policy)
        # Branches of a table share its orphans, so only the first branch in the policies counts them.
        counting: dict[tuple[str, str], tuple[str, str, str | None, str | None]] = {}
        for key in self._tables:
            counting.setdefault(key[:2], key)
        counts = {key: self._tables[key].count_orphans for key in counting.values()}
        self._orphans = OrphanCounts(counts, policies.count_orphans_every)

    def run(self, stopping: threading.Event) -> None:
        """Look until told to stop. Meanwhile a thread counts orphans: a count lists a table, which may take an hour."""
        threading.Thread(target=self._count_for_ever, args=(stopping,), name="orphans", daemon=True).start()
        while not stopping.is_set():
            self.look()
            stopping.wait(self._every_s)

    def look(self) -> list[Decided]:
        """Look at every table, and return all decisions. A table that fails is in `failed`; the others go on."""
        decided: list[Decided] = []
        self.failed, self._under_way = {}, None
        self._hear()
        sizes: dict[tuple[str, str, str], TableSizes] = {}
        unreadable = 0
        for key, table in self._tables.items():
            try:
                decided += table.look()
                seen = replace(table.sizes, orphan_bytes=self._orphans.bytes.get(key))
                sizes.setdefault((table.catalog_uri, table.name, key[2] or ""), seen)
                table.said.worked()
            except Exception as error:  # even a bug of ours must not stop the other tables
                foreseen = error if isinstance(error, DeltaCompactError) else None
                self.failed[table.catalog_uri, table.name] = foreseen or DeltaCompactError(one_line(error))
                table.said.failed(error)
                unreadable += 1
                with contextlib.suppress(DeltaCompactError):
                    table.stay()
            self.seen = replace(self.seen, alive_s=self.clock())
        now_s = self.clock()
        self.seen = TablesSeen(now_s, sizes, unreadable, now_s)
        return decided

    def _count_for_ever(self, stopping: threading.Event) -> None:
        while self._orphans.are_wanted and not stopping.is_set():
            self.count_orphans()
            stopping.wait(self._every_s)

    def count_orphans(self) -> None:
        """Count those of one table, if one is due. The next look has the number."""
        self._orphans.look(self.clock())

    def _hear(self) -> None:
        """Set our clock by the store's, now and then. If two watchers' clocks were hours apart, each would misdate what
        the other one submitted, and cooldowns would not work."""
        if time.monotonic() - self._heard_s >= _HEAR_EVERY_S and self._state.tell(self._store_clock):
            self._heard_s = time.monotonic()

    def under_way(self) -> list[JobRun]:
        """The open job runs, read once a look: each of many tables asks for them."""
        if self._under_way is None:
            marked = [mark.job_run_id for mark in self._state.open_job_runs()]
            self._under_way = [run for run in side_by_side(marked, self._read_open, READ_AT_ONCE) if run is not None]
        return self._under_way

    def _read_open(self, job_run_id: str) -> JobRun | None:
        with contextlib.suppress(NotFoundError, CorruptionError):
            run = self._state.job_run(job_run_id).value
            return None if run.state.ended else run
        return None


class _WatchedTable:
    """One table, or one branch of an Iceberg table: its policies, and what was read of it so far. `into`: the other
    table that it is compacted into; each such pair has a backlog of its own."""

    def __init__(self, catalog_uri: str, name: str, branch: str | None, into: str | None, watcher: Watcher) -> None:
        self.catalog_uri = catalog_uri
        self.name = name
        self.branch = branch
        self.into = into
        self.policies: list[Policy] = []
        self.sizes = TableSizes()
        self.said = SaidOnce(f"table {name} of {catalog_uri}")
        self._watcher = watcher
        self._state = watcher._state
        self._statistics: Callable[[], Sequence[Statistics]] | None = None
        named = "\n".join([_normal(catalog_uri), name, *(part for part in (branch, into) if part)])
        self._submissions = Submissions(self._state.store, named, self._state.unreadable)
        self._ended: dict[str, Ended] = {}
        self._sent_s: dict[str, float] = {}
        self._kept: dict[tuple[str, str], Decided] = {}  # as they were last written
        self._decided_s = self._kept_s = 0.0

    def look(self) -> list[Decided]:
        if self._statistics is None:
            self._statistics = self._looking()
        found = self._statistics()
        self.sizes = total(statistics.table_sizes for statistics in found)
        submissions = self._submissions.read()
        now_s = self._watcher.clock()
        histories = self._histories(found, submissions, now_s)
        decided: list[Decided] = []
        taken: set[str] = set()
        for policy in self.policies:
            decisions = [
                (statistics, evaluate(policy, statistics, histories[session_id(statistics.partition)], now_s))
                for statistics in found
            ]
            wanted = [
                (statistics, decision)
                for statistics, decision in decisions
                if decision.action is TriggerAction.SUBMIT and session_id(statistics.partition) not in taken
            ]
            job_runs = self._submit(policy, wanted, now_s)
            taken |= set(job_runs)
            decided += [
                Decided(
                    self.name,
                    statistics.partition,
                    policy.name,
                    decision,
                    job_runs.get(session_id(statistics.partition)),
                )
                for statistics, decision in decisions
            ]
        self._keep(decided)
        self._submissions.fold(self._ended, histories)
        left = {submission.job_run_id for submission in self._submissions.read_before}
        self._ended = {name: ended for name, ended in self._ended.items() if name in left}
        self._sent_s = {name: sent_s for name, sent_s in self._sent_s.items() if name in left}
        return decided

    def _looking(self) -> Callable[[], Sequence[Statistics]]:
        """A function that looks at the table. Called again, it reads only what is new."""
        catalog = self._watcher._open_catalog(self.catalog_uri)
        layout = any(policy.asks_for_layout for policy in self.policies)
        if not is_iceberg_catalog(catalog):
            return lambda: statistics_of(catalog, self.name, self._watcher.clock(), layout, self.into)
        branch = self.branch or MAIN
        watched = catalog.watched(self.name, branch, layout)
        return lambda: [branch_statistics(branch, watched.look())]

    def count_orphans(self) -> int:
        return orphan_bytes(self._watcher._open_catalog(self.catalog_uri), self.name)

    # History

    def _histories(
        self, found: Sequence[Statistics], submissions: list[Submission], now_s: float
    ) -> dict[str, TriggerHistory]:
        """The history of each partition, by its session's id."""
        keys = next((list(statistics.partition) for statistics in found), [])
        running = self._running(submissions, now_s, keys)
        submitted, never = self._submissions.submitted(self._ended), SubmittedPartition()
        histories = {}
        for name in (session_id(statistics.partition) for statistics in found):
            known = submitted.get(name, never)
            histories[name] = TriggerHistory(
                running.get(name, running.get("")), known.last_s, known.failures, known.marks
            )
        return histories

    def _running(self, submissions: list[Submission], now_s: float, keys: Sequence[str]) -> dict[str, str]:
        """What job runs under way do, by session id; "" stands for all partitions. `keys`: of the table's partitions,
        in its order."""
        ours = [run for run in self._watcher.under_way() if self._is_ours(run.document)]
        running = {name: f"job run {run.id} works on it" for run in ours for name in _named(run.document, keys)}
        outcomes = side_by_side(submissions, self._goes_on, READ_AT_ONCE)
        goes_on = {each.job_run_id: outcome for each, outcome in zip(submissions, outcomes, strict=True)}
        if None in goes_on.values():
            self._ended |= self._submissions.ends()  # of records that have expired
            left = {submission.job_run_id for submission in self._submissions.not_folded()}
            submissions = [submission for submission in submissions if submission.job_run_id in left]
        for submission in submissions:
            if submission.job_run_id in self._ended or goes_on[submission.job_run_id] is False:
                continue
            said = f"job run {submission.job_run_id} works on it"
            if goes_on[submission.job_run_id] is None:
                self._send_again(submission, now_s)
                said = f"job run {submission.job_run_id} waits in the queue: no dispatcher has accepted it yet"
            running.update({session_id(partition): said for partition in submission.partitions})
        return running

    def _goes_on(self, submission: Submission) -> bool | None:
        """Whether a submission's job run has not ended. None: it has no record. Remembers how it ended."""
        if submission.job_run_id not in self._ended:
            try:
                run = self._state.job_run(submission.job_run_id).value
            except NotFoundError:
                return None
            except CorruptionError:  # it was accepted, whatever became of it
                return False
            if not run.state.ended:
                return True
            self._ended[run.id] = Ended.of(run)
        return False

    def _is_ours(self, document: Mapping[str, Any]) -> bool:
        """Whether a job run reads or writes this table and branch; for another table: whether it writes to that one."""
        if self.branch is not None and self.branch != branch_of(document)["branch"]:
            return False
        tables = [document.get("destination_compacted_table_id")]
        if self.into is None:
            tables.append(document.get("source_table_id"))
        return (self.into or self.name) in tables and _normal(str(document.get("catalog"))) == _normal(self.catalog_uri)

    # Submit

    def _submit(self, policy: Policy, wanted: list[tuple[Statistics, Decision]], now_s: float) -> dict[str, str]:
        """Submit partitions. Returns job run ids by session id, fewer if another watcher was faster."""
        submitted: dict[str, str] = {}
        reasons = sorted({decision.reason.value for _, decision in wanted})
        mark_of = {session_id(statistics.partition): statistics.mark for statistics, _ in wanted}
        for partitions in batches([statistics.partition for statistics, _ in wanted], PARTITIONS_MAX):
            job_run_id = self._submissions.next_job_run_id()
            document = values_of(policy.instruction(partitions, job_run_id))
            marks = tuple(mark_of[session_id(partition)] for partition in partitions)
            why = ",".join(reasons)
            submission = Submission(policy.name, job_run_id, tuple(partitions), now_s, why, document, marks)
            if not self._submissions.put(submission):
                _LOG.info("table %s: another watcher was faster", self.name)
                break
            self._send(submission, now_s)
            submitted |= {session_id(partition): job_run_id for partition in partitions}
        return submitted

    def _send(self, submission: Submission, now_s: float) -> None:
        try:
            self._watcher._queue.send(json.dumps(submission.document), self.name)
            self._sent_s[submission.job_run_id] = now_s
            _LOG.info("job run %s submitted by policy %s", submission.job_run_id, submission.policy)
        except DeltaCompactError as error:  # the next look sends it again
            _LOG.warning("job run %s could not be sent: %s", submission.job_run_id, one_line(error))

    def _send_again(self, submission: Submission, now_s: float) -> None:
        """Send the document of a job run without a record: its watcher died before that, or the queue still has it."""
        sent_s = self._sent_s.get(submission.job_run_id)
        if sent_s is None or abs(now_s - sent_s) > _SENT_AGAIN_AFTER_S:  # our clock may have been set back
            self._send(submission, now_s)

    # Keep

    def _keep(self, decided: list[Decided]) -> None:
        """Write all decisions with their reasons where one is another, and now and then for their texts. Log those that
        changed."""
        now = {(verdict.policy, session_id(verdict.partition)): verdict for verdict in decided}
        for key, verdict in now.items():
            before = self._kept.get(key)
            if before is None or before.outcome[:2] != verdict.outcome[:2]:
                said = verdict.decision
                _LOG.info("%s %s by %s: %s, %s", self.name, verdict.partition, verdict.policy, said.action, said.text)
        now_s = self._watcher.clock()
        is_new = {key: verdict.outcome for key, verdict in now.items()} != {
            key: verdict.outcome for key, verdict in self._kept.items()
        }
        if is_new:
            self._decided_s = now_s
        again_s = KEPT_AGAIN_S if now == self._kept else _TEXTS_AGAIN_S
        if is_new or (now and abs(now_s - self._kept_s) > again_s):
            documents = [verdict.document() for verdict in decided]
            keep_decisions(self._state.store, self._submissions.digest, self._decided_s, documents)
            self._kept, self._kept_s = now, now_s

    def stay(self) -> None:
        """Somebody watches this table, although it could not be read: what it remembers must not expire."""
        now_s = self._watcher.clock()
        if abs(now_s - self._kept_s) > KEPT_AGAIN_S:
            keep_again(self._state.store, self._submissions.digest)
            self._kept_s = now_s


def _named(document: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """The ids of a document's sessions, where `keys` is the order of the table's partition keys: a document may have
    another one. "" stands for all partitions."""
    if NamedStreams.of(document).partitions is None:
        return [""]
    if str(document.get("catalog")).startswith(ICEBERG):
        return [session_id(branch_of(document))]
    place = {key: number for number, key in enumerate(keys)}
    return [
        session_id(
            {key: partition_text(partition[key]) for key in sorted(partition, key=lambda key: place.get(key, 0))}
        )
        for partition in document["partitions"]
    ]


def _normal(uri: str) -> str:
    """The same text for every way to write a catalog's URI."""
    if uri.startswith(ICEBERG):
        return uri
    try:
        return open_store(uri).uri
    except DeltaCompactError:
        return uri
