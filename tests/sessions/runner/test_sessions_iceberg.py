"""Job runs on Iceberg tables: real dispatchers and runners, PyIceberg as the judge of what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter

import jsonschema
import psutil
import pyarrow as pa
import pytest
from holding import COMMITS
from iceberg_lake import Lake
from sessions_place import DispatchingPlace
from sessions_processes import resume, suspend, until
from sqs_pair import sqs_queues

import deltacompact
from deltacompact.base.errors import ConflictError
from deltacompact.iceberg.commit.attempts import ATTEMPT, committed_by, refuse_superseded, under_attempt
from deltacompact.iceberg.table.metadata import Snapshot
from sessions.base.model import JobRunState, SessionState
from sessions.base.signals import handled
from sessions.cli import run
from sessions.events.event import SCHEMA_PATH
from sessions.events.outbox import Outbox
from sessions.metrics.collector import RecordsCollector
from sessions.metrics.families import exposition
from sessions.overview.overview import OverviewReader
from sessions.planning.learning import RateStore, pool_of
from sessions.queues.opening import open_queue
from sessions.records.swapping import SwappedRecords
from sessions.runner import branch, group
from sessions.runner.branch import outcome_of
from sessions.runner.reporting import Superseded

pytestmark = pytest.mark.processes

T = "ns.t"
LOCAL = {"executor": "local", "local_threads": 1}
DELETED = {"delete-file-threshold": 1}
MANY = 6
ONE_BY_ONE = {
    **DELETED,
    "max-file-group-input-files": 1,
    "partial-progress.enabled": True,
    "partial-progress.max-commits": MANY,
}
"""One commit for each of many files."""


class Place(DispatchingPlace):
    """An Iceberg lake under PyIceberg's configuration, a queue and a state."""

    def __init__(self, folder, queue=None):
        super().__init__(folder, queue)
        self.lake = Lake(folder, "prod")
        self.uri = "iceberg://prod"
        self.configuration = {
            "PYICEBERG_CATALOG__PROD__TYPE": "sql",
            "PYICEBERG_CATALOG__PROD__URI": f"sqlite:///{self.lake.database}",
            "PYICEBERG_CATALOG__PROD__WAREHOUSE": self.lake.warehouse,
        }

    def filled(self, table_id=T, files=6, rows=300):
        """Small data files, and an equality delete of two rows of each."""
        self.lake.create(table_id, pa.schema([("id", pa.int64()), ("v", pa.string())]))
        for number in range(files):
            ids = range(number * rows, (number + 1) * rows)
            self.lake.append(table_id, [{"id": key, "v": f"value {key}"} for key in ids])
        gone = [number * rows + place for number in range(files) for place in (0, 1)]
        self.lake.delete_by_key(table_id, {"id": gone})
        return sorted(set(range(files * rows)) - set(gone))

    def document(self, table_id=T, **fields):
        return {"version": 1, "catalog": self.uri, "source_table_id": table_id, "settings": LOCAL, **fields}

    def submit(self, job_run_id, table_id=T, **fields):
        document = self.document(table_id, job_run_id=job_run_id, **fields)
        open_queue(self.queue).send(json.dumps(document), table_id)

    def dispatcher(self, *options, held=None):
        return super().dispatcher("--allow", self.uri, *options, held=held, **self.configuration)

    def drain(self, *options, exit_status=0):
        with self.dispatcher("--drain", *options) as dispatcher:
            assert dispatcher.wait(150) == exit_status, dispatcher.log.read_text()

    def ids(self, table_id=T, branch="main"):
        """As PyIceberg reads them, which refuses a table with equality deletes."""
        return sorted(row["id"] for row in self.lake.rows(table_id, branch))

    def snapshots(self, table_id=T):
        """Attempt and operation of each snapshot, the oldest first."""
        found = self.lake.catalog.load_table(table_id).snapshots()
        ordered = sorted(found, key=lambda snapshot: snapshot.sequence_number)
        return [(snapshot.summary.additional_properties.get(ATTEMPT), snapshot) for snapshot in ordered]

    def committed(self, table_id=T):
        """The attempts that have committed, in their order."""
        return [attempt for attempt, _ in self.snapshots(table_id) if attempt is not None]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


# --- what is asked for is done -------------------------------------------------------------------------------------


def test_job_runs_on_iceberg_tables_from_submit_to_sla(place, capsys):
    live = place.filled()
    place.filled("ns.other")
    place.lake.catalog.load_table(T).manage_snapshots().create_branch(
        place.lake.catalog.load_table(T).current_snapshot().snapshot_id, "audit"
    ).commit()
    document = place.folder / "job.json"
    document.write_text(json.dumps(place.document(mode="rewrite", options=DELETED, desired_sla=900)))
    assert run(["validate", str(document), "--allow", place.uri]) == 0
    for _ in range(2):
        assert run(["submit", str(document), "--queue", place.queue, "--job-run-id", "nightly"]) == 0
    place.submit("audit", options=DELETED, branch="audit")
    place.submit("again", options=DELETED)
    place.submit("of-others", "ns.other", options=DELETED)
    place.submit("no-table", "ns.none")
    place.submit("no-branch", branch="none")
    place.submit("no-option", options={"delete-file-treshold": 1})
    place.submit("other-catalog", catalog="iceberg://staging")
    place.submit("a-folder", catalog=str(place.folder), settings={})
    capsys.readouterr()
    place.drain("--max-sessions", "2", exit_status=1)  # three of them fail

    states = {found.id: found.state.value for found in place.state.job_runs()}
    assert states == {
        "nightly": "succeeded",
        "audit": "succeeded",
        "again": "succeeded",
        "of-others": "succeeded",
        "no-table": "failed",
        "no-branch": "failed",
        "no-option": "failed",
    }
    assert Counter((letter.reason, letter.field) for letter in open_queue(place.queue).dead_letters()) == {
        ("catalog_not_allowed", "catalog"): 2
    }
    assert place.ids() == place.ids("ns.other") == place.ids(branch="audit") == live
    assert Counter(place.committed()) == {"nightly/1/1": 1, "audit/1/1": 1}
    assert "has no table 'ns.none'" in place.run("no-table").error
    assert "has no branch 'none'" in place.run("no-branch").error
    assert "'delete-file-treshold': did you mean 'delete-file-threshold'?" in place.run("no-option").error

    session = place.session("nightly")
    outcome = session.outcome
    assert session.id == "branch=main" and session.plan.mode == "rewrite" and session.plan.memory_per_task_bytes > 0
    assert (outcome.rows_in, outcome.live, outcome.deleted) == (1800, 1788, 12)
    assert (outcome.files_in, outcome.files_out, outcome.delete_files_removed) == (6, 1, 1)
    assert outcome.bytes_in > 0 and outcome.bytes_out > 0 and outcome.seconds > 0
    assert outcome.snapshots == tuple(
        str(snapshot.snapshot_id) for by, snapshot in place.snapshots() if by == "nightly/1/1"
    )
    assert place.session("again").state is SessionState.NOTHING_TO_DO
    assert "too few" in place.session("again").nothing_to_do
    assert place.session("again").outcome.snapshots == ()

    assert run(["status", "--state", place.state_uri, "--job-run", "nightly"]) == 0
    printed = capsys.readouterr().out
    assert "branch=main" in printed and "1,800" in printed
    assert run(["sla", "--state", place.state_uri, "--json", "--sessions"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["job_runs"]["desired"] == 1.0, "900 s are enough"
    _check_events(place)
    _check_learned(place)
    scraped = exposition(RecordsCollector(OverviewReader(place.state).read)).decode()
    assert 'deltacompact_session_rows_total{kind="deleted"} 36.0' in scraped
    assert 'deltacompact_sessions{state="nothing_to_do"} 1.0' in scraped


def _check_events(place):
    schema = jsonschema.Draft202012Validator(json.loads(SCHEMA_PATH.read_text()))
    outbox = Outbox(place.state.store)
    documents = [
        json.loads(place.state.store.get(stat.path)) for stat in place.state.store.list("job-runs/nightly/events/")
    ]
    for document in documents:
        schema.validate(document)
    assert outbox.recorded("nightly")
    (succeeded,) = [event for event in documents if event["type"] == "deltacompact.session.succeeded"]
    data = succeeded["data"]
    assert data["partition"] == {"branch": "main"} and data["table"] == T
    assert data["snapshots"] == list(place.session("nightly").outcome.snapshots)
    assert (data["files_in"], data["files_out"], data["rows_in"], data["live"]) == (6, 1, 1800, 1788)
    assert "iceberg://" not in json.dumps(documents), "no catalog's URI"


def _check_learned(place):
    """Sessions on Iceberg tables are expected by rates of their own; those of streams are untouched."""
    rates = RateStore(SwappedRecords(place.state.store))
    learned = rates.rates(pool_of("local/local", "rewrite")).observations
    assert {lesson.stream for lesson in learned} == {
        f"{T} (main, rewrite) in iceberg://prod",
        f"{T} (audit, rewrite) in iceberg://prod",
        "ns.other (main, rewrite) in iceberg://prod",
    }
    assert rates.rates("local/local").observations == ()


def test_on_sqs_with_a_dispatcher_that_is_killed(moto_endpoint, tmp_path):
    url, _ = sqs_queues()
    place = Place(tmp_path, url)
    live = {table: place.filled(table, files=2) for table in ("ns.a", "ns.b")}
    for table in live:
        for _ in range(2):
            place.submit(f"of-{table}", table, options=DELETED)
    place.submit("bad", "ns.a", partitions=[{"day": "a"}])
    with place.dispatcher() as first, place.dispatcher("--drain") as second:
        until(lambda: list(place.state.job_runs()), "a job run is accepted")
        first.kill()
        assert second.wait(150) == 0, second.log.read_text()
    assert {found.id: found.state for found in place.state.job_runs()} == {
        f"of-{table}": JobRunState.SUCCEEDED for table in live
    }
    for table, ids in live.items():
        assert place.ids(table) == ids
        assert len(place.committed(table)) == 1
    assert next(open_queue(url).dead_letters()).field == "partitions"


def test_job_runs_on_one_branch_come_one_after_another_and_branches_side_by_side(place):
    place.filled(files=MANY, rows=20)
    table = place.lake.catalog.load_table(T)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    place.submit("first", options=ONE_BY_ONE)
    with place.dispatcher("--max-sessions", "2", held=COMMITS) as dispatcher:
        until(place.hold.reached, "the first one runs")
        place.submit("second", options=ONE_BY_ONE)
        place.submit("of-audit", branch="audit", options=DELETED)
        place.ended("of-audit")
        assert not place.run("first").state.ended, "another branch waits for nobody"
        assert place.run("second").state is JobRunState.ACCEPTED, "the same branch waits"
        place.hold.release()
        assert place.ended("first").state is place.ended("second").state is JobRunState.SUCCEEDED
        assert dispatcher.process.is_alive()
    assert place.session("second").state is SessionState.NOTHING_TO_DO
    assert Counter(place.committed()) == {"first/1/1": MANY, "of-audit/1/1": 1}


# --- what dies -----------------------------------------------------------------------------------------------------


def test_a_runner_that_is_killed_is_tried_again_and_the_rows_are_right(place):
    """What it had committed stays, and is a part of the result."""
    live = place.filled(files=MANY, rows=20)
    place.submit("run-1", options=ONE_BY_ONE)
    with place.dispatcher(held=COMMITS) as dispatcher:
        until(place.hold.reached, "some groups are committed")
        (runner,) = dispatcher.runners()
        os.kill(runner.pid, signal.SIGKILL)
        done = place.ended("run-1")
    session = place.session("run-1")
    assert done.state is JobRunState.SUCCEEDED and (session.attempts, session.failures) == (2, 1)
    committed = Counter(place.committed())
    assert set(committed) == {"run-1/1/1", "run-1/1/2"} and committed.total() == MANY
    assert place.ids() == live
    outcome = session.outcome
    assert len(outcome.snapshots) == MANY and (outcome.files_in, outcome.files_out) == (MANY, MANY)
    assert (outcome.rows_in, outcome.live, outcome.deleted) == (20 * MANY, 18 * MANY, 2 * MANY)


def test_what_was_suspended_beyond_its_lease_commits_nothing_after_its_successor(place):
    """Its dispatcher is killed, another one takes over and commits; then the first attempt wakes up."""
    live = place.filled(files=MANY, rows=20)
    place.submit("run-1", options=ONE_BY_ONE)
    with place.dispatcher(held=COMMITS) as first:
        until(place.hold.reached, "some groups are committed")
        runners = first.runners()
        suspend(runners)
        first.kill()
        with place.dispatcher("--drain") as second:
            assert second.wait(120) == 0, second.log.read_text()
        committed = place.committed()
        assert place.run("run-1").takeovers == 1 and Counter(committed).total() == MANY
        assert set(committed) == {"run-1/1/1", "run-1/2/2"}
        place.hold.release()
        resume(runners)
        until(lambda: not any(psutil.pid_exists(runner.pid) for runner in runners), "it ends")
    assert place.committed() == committed and place.ids() == live
    assert place.session("run-1").attempt == "run-1/2/2"


def test_what_an_attempt_committed_before_it_died_is_the_result_of_the_job_run(place):
    """The attempt that died after its commit is made by hand: its snapshot is there, no record says so."""
    live = place.filled()
    catalog = deltacompact.open_catalog(place.lake.catalog)
    deltacompact.compact(T, delta_catalog_client=catalog, options=DELETED, attempt="run-1/1/0")
    place.submit("run-1", options=DELETED)
    place.drain()
    session = place.session("run-1")
    assert session.state is SessionState.SUCCEEDED and session.nothing_to_do is None
    ((attempt, snapshot),) = [found for found in place.snapshots() if found[0] is not None]
    assert (attempt, session.outcome.snapshots) == ("run-1/1/0", (str(snapshot.snapshot_id),))
    assert (session.outcome.rows_in, session.outcome.live, session.outcome.files_in) == (1800, 1788, 6)
    assert place.ids() == live


def test_writers_go_on_while_a_job_run_works(place):
    live = place.filled(files=MANY, rows=20)
    place.submit("run-1", options=ONE_BY_ONE)
    with place.dispatcher("--drain", held=COMMITS) as dispatcher:
        until(place.hold.reached, "some groups are committed")
        place.lake.append(T, [{"id": 5000, "v": "late"}])
        place.lake.delete_by_key(T, {"id": [5, 20 * MANY - 1]})
        place.hold.release()
        assert dispatcher.wait(120) == 0, dispatcher.log.read_text()
    assert place.run("run-1").state is JobRunState.SUCCEEDED
    place.submit("run-2", options={"rewrite-all": True})
    place.drain()
    assert place.ids() == sorted({*live, 5000} - {5, 20 * MANY - 1}), "the delete that came meanwhile kept applying"


# --- attempts, in one process --------------------------------------------------------------------------------------


def snapshot_of(number, attempt):
    return Snapshot(number, None, number, 0, "list", 0, {ATTEMPT: attempt} if attempt else {})


@pytest.mark.parametrize(
    ("committed", "own", "allowed"),
    [
        ((), "run-1/1/1", True),
        (("run-1/1/1",), "run-1/1/1", True),
        (("run-1/1/1",), "run-1/1/2", True),
        (("run-1/1/2",), "run-1/1/1", False),
        (("run-1/2/1",), "run-1/1/9", False),
        (("run-1/10/1",), "run-1/9/1", False),
        (("run-2/9/9", "run-1/1/1", None), "run-1/1/1", True),
        (("run-1/2/1",), None, True),
        (("run-1/2/1",), "run-1/x", True),
    ],
)
def test_no_attempt_commits_after_a_later_one(committed, own, allowed):
    snapshots = [snapshot_of(number, attempt) for number, attempt in enumerate(committed, 1)]
    if allowed:
        refuse_superseded(snapshots, own)
    else:
        with pytest.raises(ConflictError, match="was given up"):
            refuse_superseded(snapshots, own)


def test_what_attempts_at_one_job_run_committed_is_found_by_its_name():
    attempts = ("run-1/2/1", "run-10/1/1", None, "run-1/1/1", "nobody")
    snapshots = [snapshot_of(number, attempt) for number, attempt in enumerate(attempts, 1)]
    assert [snapshot.snapshot_id for snapshot in committed_by(reversed(snapshots), "run-1")] == [1, 4]


def test_what_snapshots_say_of_a_rewrite_and_of_rows_that_were_marked():
    rewrite = {
        "deleted-data-files": "6", "added-data-files": "1", "deleted-records": "100", "added-records": "90",
        "removed-files-size": "5000", "added-files-size": "900", "removed-delete-files": "2",
        "removed-position-deletes": "4", "removed-equality-deletes": "6",
    }  # fmt: skip
    convert = {
        "added-delete-files": "2", "added-position-deletes": "7", "removed-delete-files": "3", "removed-dvs": "1",
        "removed-position-deletes": "2", "added-files-size": "60", "removed-files-size": "80",
    }  # fmt: skip
    done = outcome_of([Snapshot(8, None, 8, 0, "list", 0, rewrite)])
    assert (done.rows_in, done.live, done.deleted) == (100, 90, 10)
    assert (done.files_in, done.files_out, done.delete_files_added, done.delete_files_removed) == (6, 1, 0, 2)
    assert (done.bytes_in, done.bytes_out, done.snapshots) == (5000, 900, ("8",))
    done = outcome_of([Snapshot(9, None, 9, 0, "list", 0, convert)])
    assert (done.rows_in, done.live, done.deleted) == (0, 0, 5), "five rows more are marked than before"
    assert (done.files_in, done.files_out, done.delete_files_added, done.delete_files_removed) == (0, 0, 2, 3)
    assert outcome_of([]).snapshots == ()


def test_an_attempt_that_wakes_up_before_its_commit_finds_its_successor(place):
    """The driver is stopped at its last moment before the commit, while a later attempt does the whole work."""
    live = place.filled()
    catalog = deltacompact.open_catalog(place.lake.catalog)

    def successor():
        deltacompact.compact(T, delta_catalog_client=catalog, options=DELETED, attempt="run-1/2/1")

    with under_attempt("run-1/1/1"):
        given_up = place.lake.prepared(T, delete_file_threshold=1, before_commit=successor)
        with pytest.raises(ConflictError, match="run-1/1/1 was given up: run-1/2/1 has committed"):
            given_up.run()
    assert place.committed() == ["run-1/2/1"] and place.ids() == live
    stored = {os.path.basename(path) for path in _data_files(place)}
    assert stored == {os.path.basename(path) for path in _known_files(place)}, "it deleted what it had written"


def test_an_earlier_attempt_leaves_alone_what_its_successor_works_on(place):
    live = place.filled()

    def given_up():
        with under_attempt("run-1/1/1"):
            place.lake.prepared(T, delete_file_threshold=1).run()

    with under_attempt("run-1/2/1"):
        successor = place.lake.prepared(T, delete_file_threshold=1, before_commit=_once(given_up)).run()
    assert place.committed() == ["run-1/2/1"] and place.ids() == live
    assert len(successor.snapshots) == 1 and successor.redone == 0


def test_a_runner_ends_once_its_lease_is_lost(monkeypatch):
    looks = []

    def watch():
        looks.append(time.monotonic())
        if len(looks) == 2:
            raise Superseded("run-1 is in epoch 2")

    monkeypatch.setattr(branch, "_LOOK_EVERY_S", 0.05)
    with handled(group._terminate):
        with branch.terminated_if_superseded(watch):
            pass
        assert looks == []
        with pytest.raises(group.Terminated), branch.terminated_if_superseded(watch):
            time.sleep(30)
    assert len(looks) == 2


def test_a_signal_in_a_commit_deletes_no_file_of_it(place, monkeypatch):
    """The catalog has carried the commit out when SIGTERM ends the process, as the runner's handler does it."""
    from deltacompact.iceberg.table.pyiceberg_door import IcebergTable

    live = place.filled()
    commit = IcebergTable.commit

    def killed_after(*given, **named):
        commit(*given, **named)
        raise group.Terminated

    monkeypatch.setattr(IcebergTable, "commit", killed_after)
    with pytest.raises(deltacompact.base.errors.Interrupted, match="all files that it names are kept"):
        place.lake.rewrite(T, delete_file_threshold=1)
    monkeypatch.undo()
    assert place.ids() == live


def _once(act):
    done = []

    def first_time():
        if not done:
            done.append(True)
            act()

    return first_time


def _data_files(place):
    folder = place.lake.catalog.load_table(T).location().removeprefix("file://")
    return [
        os.path.join(where, name) for where, _, names in os.walk(folder) for name in names if name.endswith(".parquet")
    ]


def _known_files(place):
    """Of all snapshots."""
    table = place.lake.catalog.load_table(T)
    paths = set()
    for snapshot in table.snapshots():
        for manifest in snapshot.manifests(table.io):
            paths |= {
                entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            }
    return paths
