"""Triggers on Iceberg tables: what a policy decides from the manifests of a branch, and what it reads for that."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from iceberg_lake import Lake
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from sessions_records import job_run

import deltacompact
from deltacompact.base.errors import InputError
from deltacompact.iceberg.commit.attempts import under_attempt
from deltacompact.iceberg.row_deltas import KeyedRows, commit_row_delta
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.watching import BranchSizes
from deltacompact.storage.memory import MemoryStore
from sessions.base.model import JobRunState
from sessions.cli import run
from sessions.documents.instruction import of_values
from sessions.queues.opening import open_queue
from sessions.records.decisions import DecisionsReader
from sessions.records.state_store import StateStore
from sessions.watch.evaluate import TriggerAction, TriggerHistory, TriggerReason, evaluate
from sessions.watch.policy import Policies, Policy, read_policies
from sessions.watch.statistics import branch_statistics
from sessions.watch.watcher import Watcher

T = "ns.t"
NOW_S = 1_795_300_000.0
HOUR_S = 3600.0
MIB = 1 << 20
SIZES = BranchSizes(
    head=7,
    data_file_bytes=np.array([MIB, 2 * MIB, 600 * MIB, 500 * MIB], np.int64),
    small_file_bytes=384 * MIB,
    data_rows=1000,
    delete_files=12,
    delete_rows=200,
    new_bytes=50 * MIB,
    compacted_s=NOW_S - 2 * HOUR_S,
    written_s=NOW_S - HOUR_S,
    layout_depth=3.4,
    layout_gain=1.5,
)


def policy(**fields) -> Policy:
    given = {"name": "p", "catalog": "iceberg://prod", "source_table_id": T, "when": [{"delete_files": 10}], **fields}
    return Policy.model_validate(given)


# --- what a policy decides: pure -----------------------------------------------------------------------------------

SUBMITS = [
    ({"delete_files": 12}, TriggerReason.DELETE_FILES, "12 delete files, 12 wanted"),
    ({"delete_file_share": 0.75}, TriggerReason.DELETE_FILE_SHARE, "75.0% of files hold deletes, 75.0% wanted"),
    ({"dead_row_share": 0.2}, TriggerReason.DEAD_ROW_SHARE, "20.0% of rows are deleted, 20.0% wanted"),
    ({"small_files": 2}, TriggerReason.SMALL_FILES, "2 small files, 2 wanted"),
    ({"small_files": 3, "small_file_bytes": 550 * MIB}, TriggerReason.SMALL_FILES, "3 small files"),
    ({"new_bytes": 50 * MIB}, TriggerReason.NEW_BYTES, "new bytes"),
    ({"compaction_age": 2 * HOUR_S}, TriggerReason.COMPACTION_AGE, "7200 s since the last compaction"),
    ({"files": 16}, TriggerReason.FILES, "16 files"),
    ({"idle": HOUR_S}, TriggerReason.IDLE, "s since the last file"),
    ({"average_file_bytes_below": 300 * MIB}, TriggerReason.AVERAGE_FILE, "bytes a file"),
    ({"layout_depth": 3.4}, TriggerReason.LAYOUT_DEPTH, "3.4 files hold a value, 3.4 wanted"),
    ({"layout_gain": 1}, TriggerReason.LAYOUT_GAIN, "1.5 times what clustering costs would be saved, 1 wanted"),
    ({"small_files": 1, "compaction_age": HOUR_S}, TriggerReason.SMALL_FILES, "7200 s since the last compaction"),
]
BELOW = [
    {"delete_files": 13},
    {"delete_file_share": 0.76},
    {"dead_row_share": 0.21},
    {"small_files": 3},
    {"small_files": 2, "small_file_bytes": 2 * MIB},
    {"new_bytes": 50 * MIB + 1},
    {"compaction_age": 2 * HOUR_S + 1},
    {"delete_files": 12, "new_bytes": 51 * MIB},
    {"layout_depth": 3.5},
    {"layout_gain": 1.6},
]


@pytest.mark.parametrize(("condition", "reason", "said"), SUBMITS)
def test_a_condition_that_holds_submits_and_says_which(condition, reason, said):
    decision = evaluate(
        policy(when=[{"delete_files": 99}, condition]), branch_statistics("main", SIZES), TriggerHistory(), NOW_S
    )
    assert (decision.action, decision.reason) == (TriggerAction.SUBMIT, reason)
    assert said in decision.text.replace("7,200", "7200")


@pytest.mark.parametrize("condition", BELOW)
def test_a_threshold_that_is_not_reached_waits(condition):
    decision = evaluate(policy(when=[condition]), branch_statistics("main", SIZES), TriggerHistory(), NOW_S)
    assert (decision.action, decision.reason) == (TriggerAction.WAIT, TriggerReason.BELOW_THRESHOLDS)


def test_the_same_head_is_submitted_once_by_a_policy_unless_its_job_run_failed():
    """A compaction that leaves deletes behind, as its options say, is not asked for again and again."""
    found = branch_statistics("main", SIZES)
    asks = policy(cooldown=0)
    seen = {"submitted_s": {"p": NOW_S - HOUR_S}, "marks": {"p": "7"}}
    assert evaluate(asks, found, TriggerHistory(**seen), NOW_S).reason is TriggerReason.NOTHING_NEW
    assert evaluate(asks, found, TriggerHistory(**seen, failures=1), NOW_S).action is TriggerAction.SUBMIT
    assert evaluate(asks, found, TriggerHistory(**{**seen, "marks": {"p": "6"}}), NOW_S).action is TriggerAction.SUBMIT
    assert (
        evaluate(asks, found, TriggerHistory(**{**seen, "marks": {"other": "7"}}), NOW_S).action is TriggerAction.SUBMIT
    )
    assert evaluate(asks, found, TriggerHistory(running="run-1"), NOW_S).reason is TriggerReason.RUNNING
    assert (
        evaluate(asks, branch_statistics("main", BranchSizes()), TriggerHistory(), NOW_S).reason
        is TriggerReason.NOTHING_NEW
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"when": [{"deltas": 1}]}, "when[0].deltas: it is for delta streams"),
        ({"when": [{"delete_files": 1, "oldest_delta_age": 5}]}, "when[0].oldest_delta_age: it is for delta streams"),
        ({"when": [{"delete_file_share": 0}]}, "when[0].delete_file_share"),
        ({"when": [{"dead_row_share": 1.5}]}, "when[0].dead_row_share"),
        ({"when": [{"small_file_bytes": 5}]}, "name both"),
        ({"preset": "tiers"}, "the preset tiers is for delta streams"),
        ({"sealed": {"keys": ["day"]}}, "sealed is for delta streams"),
        ({"document": {"purge": True}}, "document.purge: it is for delta streams"),
        ({"document": {"mode": "vacuum"}}, "document.mode"),
        ({"document": {"options": {"a": []}}}, "document.options.a"),
        ({"source_table_id": "t"}, "document.source_table_id: it must be namespace.table"),
        ({"when": [{"layout_gain": 0}]}, "when[0].layout_gain"),
        ({"when": [{"layout_depth": 2}], "document": {"mode": "convert"}}, "mode convert lays out no rows"),
        ({"catalog": "/lake"}, "when[0].delete_files: it is for Iceberg tables"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_in_one_line(tmp_path, fields, said):
    path = tmp_path / "policies.json"
    given = {"name": "p", "catalog": "iceberg://prod", "source_table_id": T, "when": [{"delete_files": 10}], **fields}
    path.write_text(json.dumps({"version": 1, "policies": [given]}))
    with pytest.raises(InputError) as caught:
        read_policies(str(path))
    assert said in str(caught.value) and "\n" not in str(caught.value)


# --- what is read of a branch --------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path, "prod")


def filled(lake, table_id=T, files=5):
    lake.create(table_id, pa.schema([("id", pa.int64())]))
    for number in range(files):
        lake.append(table_id, [{"id": 10 * number + place} for place in range(10)])
    lake.delete_by_key(table_id, {"id": [0, 10, 20]})


def watched(lake, table_id=T, branch="main"):
    return deltacompact.open_catalog(lake.catalog).watched(table_id, branch)


def test_sizes_of_a_branch_with_deletes_written_by_hand(lake):
    filled(lake)
    path = next(entry.file.path for entry in lake.state(T).data)
    lake.delete_by_position(T, {path: [1, 2]})
    state, sizes = lake.state(T), watched(lake).look()
    assert sizes.data_file_bytes.tolist() == [entry.file.file_bytes for entry in state.data]
    assert (sizes.data_files, sizes.data_rows, sizes.delete_files, sizes.delete_rows) == (5, 50, 2, 5)
    assert sizes.new_bytes == sum(entry.file.file_bytes for entry in (*state.data, *state.deletes))
    assert sizes.small_files() == 5 and sizes.small_files(1) == 0
    assert sizes.small_file_bytes == 384 * MIB, "what a rewrite takes for small"
    assert sizes.head == state.snapshot_id and abs(sizes.written_s - time.time()) < 60
    oldest_ms = min(snapshot.timestamp_ms for snapshot in state.metadata.snapshots.values())
    assert sizes.known_since_s == oldest_ms / 1000 and sizes.compacted_s is None, "it never was"
    assert sizes.snapshots == len(state.metadata.snapshots)


def test_expired_snapshots_count_no_more_although_the_head_stays(lake):
    filled(lake)
    branch = watched(lake)
    before = branch.look()
    oldest = min(lake.state(T).metadata.snapshots.values(), key=lambda snapshot: snapshot.sequence_number)
    lake.catalog.load_table(T).maintenance.expire_snapshots().by_id(oldest.snapshot_id).commit()
    after = branch.look()
    assert after.head == before.head and after.snapshots == before.snapshots - 1


def test_a_compaction_is_seen_and_is_no_write(lake):
    filled(lake)
    branch = watched(lake)
    before = branch.look()
    with under_attempt("run-1/1/1"):
        lake.rewrite(T, delete_file_threshold=1)
    after = branch.look()
    assert after.head == before.head, "nobody has written since"
    assert (after.data_files, after.data_rows, after.delete_files, after.new_bytes) == (1, 47, 0, 0)
    assert before.compacted_s is None and after.compacted_s > before.known_since_s
    lake.append(T, [{"id": 99}])
    later = branch.look()
    assert later.head != before.head and later.compacted_s == after.compacted_s
    assert 0 < later.new_bytes < 5000 and later.data_files == 2


def test_a_batch_of_a_mirror_is_a_write_and_no_compaction(lake):
    """A mirror was compacted once, and never again: its batches are snapshots of deltacompact, too."""
    key = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    columns = Schema(NestedField(1, "id", LongType(), required=True), identifier_field_ids=[1])
    lake.create(T, columns)

    def put(*ids):
        rows = KeyedRows(pa.table({"id": list(ids)}, schema=key), key.empty_table())
        loaded = IcebergTable.load(lake.catalog, T)
        return commit_row_delta(loaded, [rows], ["id"], str(ids), lambda: None).snapshot_id

    batches, branch = [put(1, 2), put(2, 3)], watched(lake)
    before = branch.look()
    lake.rewrite(T, delete_file_threshold=1)
    after = branch.look()
    assert (before.head, before.compacted_s) == (batches[1], None)
    assert (after.head, after.delete_files, after.new_bytes) == (batches[1], 0, 0)
    batches.append(put(3, 4))
    later = branch.look()
    assert (later.head, later.compacted_s, later.delete_files) == (batches[2], after.compacted_s, 1)
    assert later.new_bytes > 0 and later.written_s >= after.compacted_s


def test_only_what_is_new_is_read(lake, monkeypatch):
    """Where the head has moved, the metadata file, the manifest list and new manifests; else nothing."""
    filled(lake)
    read: list[str] = []
    fetched = locations.fetched

    def counting(store, location):
        read.append(location.rpartition("/")[2])
        return fetched(store, location)

    monkeypatch.setattr(locations, "fetched", counting)
    branch = watched(lake)
    branch.look()
    assert len(read) == 2 + 6, "the metadata file, the list, a manifest for each commit"
    read.clear()
    branch.look()
    assert read == []
    lake.append(T, [{"id": 100}])
    read.clear()
    branch.look()
    assert len(read) == 3, "the metadata file, the list and one manifest"


def test_how_files_lie_is_told_with_what_clustering_would_gain_by_the_heat(lake):
    lake.create(T, pa.schema([("id", pa.int64())]), properties={"deltacompact.cluster-by": "id"})
    for number in range(6):
        lake.append(T, [{"id": number + 10 * place} for place in range(10)])
    table = deltacompact.open_catalog(lake.catalog).table(T)
    asked = deltacompact.open_catalog(lake.catalog).watched(T, "main", layout=True)
    before = asked.look()
    assert before.layout_depth > 4 and before.layout_gain == 0.0, "nobody reads it"
    table.heat(scan_reports=[{"table-name": T, "filter": {"type": "eq", "term": "id", "value": 1}}] * 20)
    gains = asked.look().layout_gain
    assert gains > 1.0
    table.heat(scan_reports=[{"table-name": T, "filter": {"type": "eq", "term": "id", "value": 2}}] * 20)
    assert asked.look().layout_gain == pytest.approx(2 * gains, rel=0.01)
    assert watched(lake).look().layout_depth == 0.0, "nobody asked for it"
    assert policy(when=[{"layout_gain": 1}]).asks_for_layout and not policy().asks_for_layout
    table.compact(options={"min-input-files": 1})
    after = asked.look()
    assert (after.layout_depth, after.layout_gain) == (1.0, 0.0)


def test_a_property_that_changes_is_seen_though_nobody_has_written(lake):
    lake.create(T, pa.schema([("id", pa.int64())]))
    for number in range(4):
        lake.append(T, [{"id": number + 10 * place} for place in range(10)])
    branch = deltacompact.open_catalog(lake.catalog).watched(T, "main", layout=True)
    before = branch.look()
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({"deltacompact.cluster-by": "id", "write.target-file-size-bytes": "4000"})
    after = branch.look()
    assert (after.head, before.layout_depth) == (before.head, 0.0)
    assert after.layout_depth > 3 and after.small_file_bytes == 1500, "as a rewrite of a layout takes them"


def test_branches_are_looked_at_by_their_names(lake):
    filled(lake)
    table = lake.catalog.load_table(T)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    lake.append(T, [{"id": 100}], "audit")
    assert watched(lake, branch="audit").look().data_files == 6 and watched(lake).look().data_files == 5
    with pytest.raises(deltacompact.NotFoundError, match="has no branch 'none'"):
        watched(lake, branch="none").look()
    lake.create("ns.empty", pa.schema([("id", pa.int64())]))
    empty = watched(lake, "ns.empty").look()
    assert (empty.data_files, empty.delete_files, empty.head, empty.compacted_s) == (0, 0, None, None)


# --- the watcher ---------------------------------------------------------------------------------------------------


class Watch:
    """Watchers over one lake, one state and one queue, at a time that the test says."""

    def __init__(self, lake, folder):
        self.lake = lake
        self.state = StateStore(MemoryStore())
        self.queue = open_queue(str(folder / "queue"))
        self.now_s = time.time()

    def watcher(self, *policies):
        told = Policies(version=1, policies=list(policies))
        return Watcher(
            told,
            self.state,
            self.queue,
            clock=lambda: self.now_s,
            open_catalog=lambda uri: deltacompact.open_catalog(self.lake.catalog),
        )

    def sent(self):
        found = []
        while messages := self.queue.receive(10, 0):
            for message in messages:
                found.append(json.loads(message.body))
                self.queue.acknowledge(message)
        return found

    def done(self, document, state=JobRunState.SUCCEEDED):
        run_ = job_run(document["job_run_id"], document=document, state=JobRunState.ACCEPTED, lease=None)
        assert self.state.accept(run_)
        stored = self.state.job_run(run_.id)
        self.state.change_job_run(stored, replace(stored.value, state=state))
        if state.ended:
            self.state.close(self.state.job_run(run_.id).value)


@pytest.fixture
def watch(lake, tmp_path):
    return Watch(lake, tmp_path)


FULL = {"mode": "rewrite", "options": {"delete-file-threshold": 1}}


def decisions(watcher):
    return {
        decided.policy: (decided.decision.action.value, decided.decision.reason.value) for decided in watcher.look()
    }


def test_one_job_run_with_mode_and_options_until_somebody_writes_again(lake, watch):
    filled(lake)
    watcher = watch.watcher(policy(cooldown=0, when=[{"delete_files": 1}], document=FULL))
    assert decisions(watcher) == {"p": ("submit", "delete_files")}
    (document,) = watch.sent()
    assert of_values(document).chosen_mode == "rewrite" and "partitions" not in document
    assert document["options"] == {"delete-file-threshold": 1}
    watch.done(document, JobRunState.RUNNING)
    assert decisions(watcher) == {"p": ("wait", "running")}
    assert decisions(watch.watcher(policy(cooldown=0, when=[{"delete_files": 1}]))) == {"p": ("wait", "running")}
    stored = watch.state.job_run(document["job_run_id"])
    watch.state.change_job_run(stored, replace(stored.value, state=JobRunState.SUCCEEDED))
    watch.state.close(watch.state.job_run(document["job_run_id"]).value)
    assert decisions(watcher) == {"p": ("wait", "nothing_new")}, "it left the delete file where it was"
    lake.rewrite(T, delete_file_threshold=1)
    assert decisions(watcher) == {"p": ("wait", "nothing_new")}, "that was a compaction, nobody has written"
    lake.append(T, [{"id": 3}])
    assert decisions(watcher) == {"p": ("wait", "below_thresholds")}
    lake.delete_by_key(T, {"id": [3]})
    assert decisions(watcher) == {"p": ("submit", "delete_files")}
    assert [document["job_run_id"][-2:] for document in watch.sent()] == ["-1"]
    kept = {decision.policy: decision for decision in DecisionsReader(watch.state.store).read()}
    assert kept["p"].partition == {"branch": "main"} and kept["p"].action == "submit"


def test_several_policies_and_branches_of_one_table(lake, watch):
    filled(lake)
    table = lake.catalog.load_table(T)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    cheap = policy(name="cheap", when=[{"delete_files": 1}], document={"mode": "convert"})
    full = policy(name="full", when=[{"small_files": 5}], document=FULL)
    of_audit = policy(name="of audit", when=[{"files": 6}], document={**FULL, "branch": "audit"})
    never = policy(name="never", when=[{"new_bytes": 1 << 40}])
    watcher = watch.watcher(never, cheap, full, of_audit)
    told = watcher.look()
    by_policy = {decided.policy: decided for decided in told}
    assert by_policy["never"].job_run_id is None and by_policy["full"].job_run_id is None
    assert {document["job_run_id"]: (document["mode"], document.get("branch")) for document in watch.sent()} == {
        by_policy["cheap"].job_run_id: ("convert", None),
        by_policy["of audit"].job_run_id: ("rewrite", "audit"),
    }
    assert by_policy["of audit"].partition == {"branch": "audit"}
    assert decisions(watcher)["full"] == ("wait", "running")


def test_what_a_watcher_cannot_look_at_leaves_the_others_to_be(lake, watch):
    filled(lake)
    watcher = watch.watcher(policy(when=[{"delete_files": 1}]), policy(name="q", source_table_id="ns.none"))
    assert decisions(watcher) == {"p": ("submit", "delete_files")}
    ((_, name), error), *more = watcher.failed.items()
    assert name == "ns.none" and "has no table 'ns.none'" in str(error) and not more


def test_watch_once_on_the_command_line(lake, tmp_path, capsys, monkeypatch):
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    for option, value in {"URI": f"sqlite:///{lake.database}", "WAREHOUSE": lake.warehouse, "TYPE": "sql"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{option}", value)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())  # PyIceberg reads the environment once, at its import
    filled(lake)
    policies = tmp_path / "policies.toml"
    policies.write_text(
        f"""
        version = 1

        [[policies]]
        name = "orders in Iceberg"
        catalog = "iceberg://prod"
        source_table_id = "{T}"
        when = [{{delete_files = 100}}, {{dead_row_share = 0.05}}, {{small_files = 50, compaction_age = 3600}}]
        document = {{mode = "rewrite", options = {{"delete-file-threshold" = 1}}}}
        """
    )
    places = ["--queue", str(tmp_path / "queue"), "--state", str(tmp_path / "state")]
    assert run(["watch", "--policies", str(policies), *places, "--once"]) == 0
    printed = capsys.readouterr().out
    assert "branch=main" in printed and "dead_row_share" in printed and "6.0% of rows are deleted" in printed
    assert run(["watch", "--policies", str(policies), *places, "--once", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["decisions"]
    assert (told["action"], told["reason"]) == ("wait", "running")
    assert told["partition"] == {"branch": "main"}
