"""98 job runs, two dispatchers, and somebody who kills dispatchers and sessions at random while messages come twice.

Two of the job runs compact on a Ray cluster that is there; the others in the processes of their sessions. Afterwards
every table is compacted exactly as it was asked for, each job run has published exactly once, none is lost, and the
dead letters are the bad documents. `DELTACOMPACT_CHAOS_SEED` makes another history.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

import psutil
import pyarrow as pa
import pytest
from oracle import Oracle
from sessions_processes import DispatcherProcess, chain
from starved_processes import impatient

import deltacompact
from sessions.base.model import JobRunState, SessionState
from sessions.queues.opening import open_queue
from sessions.queues.queue import Queue
from sessions.records.state_store import StateStore

pytestmark = pytest.mark.processes

SEED = int(os.environ.get("DELTACOMPACT_CHAOS_SEED", "20261122"))
PARTITIONS = 8
TABLES_LOCAL = 12
RAY_RUNS = 2
BAD = {
    "not json": '{"version": 1',
    "unknown field": json.dumps({"version": 1, "catalog": "/x", "source_table_id": "t", "priority": 1}),
    "not allowed": json.dumps({"version": 1, "catalog": "/etc", "source_table_id": "passwd"}),
    "climbing": json.dumps({"version": 1, "catalog": "/LAKE/../etc", "source_table_id": "passwd"}),
}
KILLS = 24


@dataclass
class Asked:
    """One job run: the partition that it compacts, what must be in it, and its document."""

    table_id: str
    partition: dict[str, str]
    document: str
    oracle: Oracle = field(default_factory=lambda: Oracle(["id"]))


@pytest.mark.timeout(600)
def test_whatever_is_killed_every_job_run_is_done_once(tmp_path, ray_cluster):
    dice = random.Random(SEED)
    lake, queue_uri, state_uri = str(tmp_path / "lake"), str(tmp_path / "queue"), str(tmp_path / "state")
    catalog, queue = deltacompact.open_catalog(lake), open_queue(queue_uri)
    asked = _filled(catalog, lake, dice)
    assert len(asked) == 98
    messages = [run.document for run in asked.values() for _ in range(dice.choice([1, 1, 1, 2, 3]))]
    messages += [body.replace("/LAKE", lake) for body in BAD.values()]
    dice.shuffle(messages)

    def dispatcher(number: int, *options: str) -> DispatcherProcess:
        log = tmp_path / f"dispatcher-{number}.log"
        common = ("--allow", lake, "--max-sessions", "3", "--tries", "100")
        return DispatcherProcess(
            queue_uri, state_uri, log, *common, *options, prepare=impatient, RAY_ADDRESS=ray_cluster
        )

    dispatchers = [dispatcher(number) for number in range(2)]
    ended: list[DispatcherProcess] = []
    killed: Counter[str] = Counter()
    try:
        for number, message in enumerate(messages):
            queue.send(message)
            if number % 50 == 49:
                time.sleep(0.5)
        while sum(killed.values()) < KILLS and not _done(queue, StateStore(state_uri)):
            time.sleep(dice.uniform(0.02, 0.1))  # short: a fast machine has done everything within seconds
            place = dice.randrange(2)
            if sum(killed.values()) % 8 == 7:
                dispatchers[place].kill()
                ended.append(dispatchers[place])
                dispatchers[place] = dispatcher(2 + len(ended))
                killed["dispatcher"] += 1
            elif runners := dispatchers[place].runners():
                _kill(dice.choice(runners))
                killed["session"] += 1
        for each in dispatchers:
            each.process.terminate()
        # One that was started just now has no handler yet.
        assert {each.wait(120) for each in dispatchers} <= {0, -signal.SIGTERM}, "they drain"
        dispatchers += [dispatcher(100, "--drain"), dispatcher(101, "--drain")]
        assert [each.wait(300) for each in dispatchers[2:]] == [0, 0]
    finally:
        for each in (*dispatchers, *ended):
            each.end()

    state = StateStore(state_uri)
    runs = {run.id: run for run in state.job_runs()}
    assert set(runs) == set(asked), "none is lost, none is made up"
    assert {run.state for run in runs.values()} == {JobRunState.SUCCEEDED}
    assert state.open_job_runs() == [] and queue.depth().is_empty
    reasons = Counter(letter.reason for letter in queue.dead_letters())
    assert reasons == {"invalid_document": 3, "catalog_not_allowed": 1}
    sessions = {session.job_run_id: session for run in runs for session in state.sessions(run)}
    assert {session.state for session in sessions.values()} == {SessionState.SUCCEEDED}
    for job_run_id, run in asked.items():
        versions = chain(catalog, run.table_id, run.partition)
        assert len(versions) == 2, f"{job_run_id} was published {len(versions) - 1} times"
        assert versions[1].compacted.session_id == sessions[job_run_id].engine_session_id
        assert sessions[job_run_id].outcome.version == versions[1].version
        rows = deltacompact.open_catalog(lake).read(run.table_id, run.partition or None).to_pylist()
        assert _sorted(rows) == _sorted(run.oracle.rows()), job_run_id
        assert versions[1].compacted.rows == len(rows)
    tried = Counter(session.attempts for session in sessions.values())
    assert killed["dispatcher"] >= 3 and killed["session"] >= 12, killed
    assert sum(attempts > 1 for attempts in tried.elements()) >= 6, tried
    assert sum(run.takeovers for run in runs.values()) >= 2


def _filled(catalog: deltacompact.DeltaStreamCatalog, lake: str, dice: random.Random) -> dict[str, Asked]:
    """Tables with deltas, and the job runs that are to compact them, by id."""
    asked: dict[str, Asked] = {}
    for number in range(TABLES_LOCAL):
        catalog.create_table(f"t{number}", ["part"], primary_keys=["id"])
        for part in range(PARTITIONS):
            asked[f"run-{number}-{part}"] = _asked(catalog, lake, dice, f"t{number}", {"part": str(part)}, "local")
    for number in range(RAY_RUNS):
        catalog.create_table(f"ray{number}", primary_keys=["id"])
        asked[f"run-ray-{number}"] = _asked(catalog, lake, dice, f"ray{number}", {}, "ray")
    for job_run_id, run in asked.items():
        run.document = json.dumps({**json.loads(run.document), "job_run_id": job_run_id})
    return asked


def _asked(
    catalog: deltacompact.DeltaStreamCatalog,
    lake: str,
    dice: random.Random,
    table_id: str,
    partition: dict[str, str],
    executor: str,
) -> Asked:
    settings = {"executor": executor, "local_threads": 1, "rows_per_round": dice.choice([10, 1000])}
    document = {"version": 1, "catalog": lake, "source_table_id": table_id, "settings": settings}
    if partition:
        document["partitions"] = [partition]
    run = Asked(table_id, partition, json.dumps(document))
    for _ in range(dice.randint(2, 4)):
        rows = [{"id": dice.randrange(20), "v": dice.randrange(1000)} for _ in range(dice.randint(1, 12))]
        operation = dice.choice(["upsert", "upsert", "delete"])
        if operation == "delete":
            rows = [{"id": row["id"]} for row in rows]
        delta = catalog.append(table_id, pa.Table.from_pylist(rows), partition=partition, operation=operation)
        run.oracle.apply(delta.position, operation, [rows])
    return run


def _done(queue: Queue, state: StateStore) -> bool:
    return queue.depth().is_empty and not state.open_job_runs()


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def _sorted(rows: list[dict[str, int]]) -> list[tuple[int, int]]:
    return sorted((row["id"], row["v"]) for row in rows)
