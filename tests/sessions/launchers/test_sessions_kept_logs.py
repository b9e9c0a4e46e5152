"""What groups print is there when their machine or cluster is gone, also of those that were killed."""

from __future__ import annotations

import json
import tempfile
import time
from unittest.mock import Mock

import pyarrow as pa
import pytest
from sessions_processes import dispatching, until
from small_groups import killed, talking
from stores import InterceptedStore

import deltacompact
from deltacompact.base.errors import StoreError
from deltacompact.storage.memory import MemoryStore
from sessions import cli
from sessions.cli.dispatch import dispatcher_of
from sessions.dispatch.expiry import expire
from sessions.dispatch.group_work import GroupWork
from sessions.dispatch.held_group import HeldGroup
from sessions.dispatch.log_keeper import LogKeeper
from sessions.launchers.launcher import GroupSpec, GroupState
from sessions.launchers.launchers import Launchers
from sessions.launchers.local import LocalLauncher
from sessions.queues.opening import open_queue
from sessions.records.state_store import StateStore

pytestmark = pytest.mark.processes

GROUP = "run-1.3.g0.1.1"
PATH = f"logs/{GROUP}.log"


def launched(folder, run) -> Launchers:
    launchers = Launchers({"local": LocalLauncher(folder, run)})
    launchers.launch(GroupSpec(GROUP, "s", "run-1", "g0.1", 3, "local", "local", "local", 1, 1, 0))
    return launchers


def test_what_a_killed_group_said_last_is_in_the_state(tmp_path):
    state = StateStore(MemoryStore())
    launchers = launched(tmp_path, killed)
    keeper = LogKeeper(state, launchers, GROUP, "local")
    until(lambda: launchers.status(GROUP).state is GroupState.ENDED, "it was killed")
    keeper.keep()
    assert state.store.get(PATH) == b"the last that it said\n"
    launchers.terminate(GROUP)
    keeper.keep()
    assert state.store.get(PATH) == b"the last that it said\n", "what is gone replaces nothing"


def test_the_log_of_a_group_that_runs_is_kept_now_and_then_and_is_bounded(tmp_path):
    puts, clock = [], [0.0]

    def intercept(kind, path, act):
        puts.append((kind, path))
        return act()

    state = StateStore(InterceptedStore(MemoryStore(), intercept))
    launchers = launched(tmp_path, talking)
    keeper = LogKeeper(state, launchers, GROUP, "local", lambda: clock[0])
    until(lambda: launchers.logs(GROUP).endswith("it goes on\n"), "it has printed")
    for second in range(0, 600, 5):
        clock[0] = float(second)
        keeper.look()
    launchers.close()
    assert puts == [("put", PATH)], "it is put again only if there is more"
    kept = state.store.get(PATH)
    assert kept.endswith(b"it goes on\n") and len(kept) == 64 << 10


def test_what_a_process_logs_in_the_state_stays_as_it_is_and_that_of_a_cluster_is_kept(tmp_path):
    state = StateStore(str(tmp_path / "state"))
    launchers = launched(tmp_path / "state" / "logs", talking)
    until(lambda: launchers.logs(GROUP).endswith("it goes on\n"), "it has printed")
    launchers.terminate(GROUP)
    LogKeeper(state, launchers, GROUP, "local").keep()
    assert len(state.store.get(PATH)) > 64 << 10, "its own file stays whole"
    launchers = launched(tmp_path / "elsewhere", killed)
    until(lambda: launchers.status(GROUP).state is GroupState.ENDED, "it was killed")
    LogKeeper(state, launchers, GROUP, "kuberay").keep()
    assert state.store.get(PATH) == b"the last that it said\n"


@pytest.mark.parametrize(("on_s3", "logs"), [(True, None), (True, "logs"), (False, "logs"), (False, None)])
def test_a_log_that_is_not_in_the_state_is_copied_there_and_goes_with_its_group(tmp_path, monkeypatch, on_s3, logs):
    """The logs of all groups ever filled up the disk of a dispatcher, where --logs named a folder."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    where = MemoryStore() if on_s3 else str(tmp_path / "state")
    folder = None if logs is None else str(tmp_path / logs)
    dispatcher = dispatcher_of(str(tmp_path / "queue"), where, logs=folder)
    launchers = dispatcher._launcher
    launchers.launch(GroupSpec(GROUP, "s", "run-1", "g0.1", 3, "local", "local", "local", 1, 1, 0))
    until(lambda: launchers.status(GROUP).state is GroupState.ENDED, "there is no such job run")
    keeper = LogKeeper(dispatcher.state, launchers, GROUP, "local")
    assert keeper.keep() and keeper.keep()
    launchers.terminate(GROUP)
    launchers.part_with_log(GROUP, True)
    launchers.close()
    assert b"run-1" in dispatcher.state.store.get(PATH)
    if logs == "logs":
        assert not list((tmp_path / "logs").iterdir())
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("answers", [True, False])
def test_a_log_of_which_the_state_has_no_copy_stays_where_it_is(tmp_path, caplog, answers):
    """It had said why its group could not go on, and went with the group."""

    def intercept(kind, path, act):
        if path == PATH and not answers:
            raise StoreError("it does not answer")
        return act()

    state = StateStore(InterceptedStore(MemoryStore(), intercept))
    here = LocalLauncher(tmp_path, killed, keeps_logs=False)
    launchers = Launchers({"local": here}, part_with_log=here.part_with_log)
    launchers.launch(GroupSpec(GROUP, "s", "run-1", "g0.1", 3, "local", "local", "local", 1, 1, 0))
    until(lambda: launchers.status(GROUP).state is GroupState.ENDED, "it was killed")
    group = HeldGroup("g0.1", {}, launched=GROUP, log=LogKeeper(state, launchers, GROUP, "local"))
    GroupWork(Mock(), Mock(launcher=launchers), *[Mock()] * 3, ray_wait_s=0.0).let_go([group])
    log = tmp_path / f"{GROUP}.log"
    assert log.exists() is not answers
    assert (f"what {GROUP} printed stays in {log}" in caplog.text) is not answers
    launchers.close()


def test_a_log_that_cannot_be_kept_holds_nothing_up(tmp_path, caplog):
    def intercept(kind, path, act):
        raise StoreError("it does not answer")

    launchers = launched(tmp_path, killed)
    until(lambda: launchers.status(GROUP).state is GroupState.ENDED, "it was killed")
    LogKeeper(StateStore(InterceptedStore(MemoryStore(), intercept)), launchers, GROUP, "local").keep()
    assert f"what {GROUP} printed could not be kept: it does not answer" in caplog.text


def test_on_s3_status_names_the_log_of_a_failed_session_and_expiry_takes_it_away(
    s3_bucket, tmp_path, capsys, monkeypatch
):
    """A dispatcher in a process of its own: when its machine is gone, with its disk, why a session failed is there."""
    lake = deltacompact.open_catalog(tmp_path / "lake")
    lake.create_table("orders", primary_keys=["id"])
    lake.append("orders", pa.table({"id": [1, 2]}))
    for file in (tmp_path / "lake").rglob("*.parquet"):
        file.unlink()
    document = {"version": 1, "catalog": str(tmp_path / "lake"), "source_table_id": "orders", "job_run_id": "run-1"}
    open_queue(str(tmp_path / "queue")).send(json.dumps(document))
    uri = f"s3://{s3_bucket}/state"
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    with dispatching(str(tmp_path / "queue"), uri, tmp_path / "log", "--drain") as dispatcher:
        assert dispatcher.wait(60) == 1
    assert not list((tmp_path / "tmp").glob("deltacompact-sessions-*"))
    assert cli.run(["status", "--state", uri, "--job-run", "run-1"]) == 1
    said = "".join(capsys.readouterr().out.split())
    state = StateStore(uri)
    paths = [stat.path for stat in state.store.list("logs/")]
    assert paths and all(f"{uri}/{path}" in said for path in paths)
    printed = state.store.get(paths[0]).decode()
    assert '"level": "ERROR"' in printed and "failed" in printed and '"job_run": "run-1"' in printed
    assert cli.run(["status", "--state", uri, "--job-run", "run-1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["job_runs"][0]["logs"] == [f"{uri}/{path}" for path in paths]
    time.sleep(1.1)  # S3 tells whole seconds
    assert expire(state, 0.0).job_run_ids == ["run-1"] and not list(state.store.list("logs/"))
