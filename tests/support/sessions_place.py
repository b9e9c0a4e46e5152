"""A queue and a state store, with a lake of delta streams or any other, where tests dispatch job runs."""

from __future__ import annotations

import json
from functools import partial

import pyarrow as pa
import pytest
from holding import Hold
from sessions_processes import dispatching, until

import deltacompact
from sessions.queues.opening import open_queue
from sessions.records.state_store import StateStore

SLOW = {"executor": "local", "local_threads": 1, "read_mb_per_s": 0.01}
"""With these options a session on 2,000 rows takes two or three seconds before it publishes."""


class DispatchingPlace:
    """A queue and a state store of job runs, with their dispatchers."""

    def __init__(self, folder, queue=None, state=None):
        self.folder = folder
        self.queue = queue or str(folder / "queue")
        self.state_uri = state or str(folder / "state")
        self.hold = Hold(folder)
        self.dispatchers = 0

    @property
    def state(self):
        return StateStore(self.state_uri)

    def dispatcher(self, *options, held=None, **named):
        self.dispatchers += 1
        log = self.folder / f"dispatcher-{self.dispatchers}.log"
        prepare = partial(self.hold.put, *held) if held else None
        return dispatching(self.queue, self.state_uri, log, *options, prepare=prepare, **named)

    def run(self, job_run_id):
        return self.state.job_run(job_run_id).value

    def session(self, job_run_id):
        (session,) = self.state.sessions(job_run_id)
        return session

    def ended(self, job_run_id, timeout_s=90.0):
        def found():
            return [run for run in self.state.job_runs() if run.id == job_run_id and run.state.ended]

        return until(found, f"{job_run_id} ends", timeout_s)[0]


class Place(DispatchingPlace):
    """The same with a lake of delta streams."""

    def __init__(self, folder, lake=None, queue=None, state=None):
        super().__init__(folder, queue, state)
        self.lake = lake or str(folder / "lake")
        self.catalog = deltacompact.open_catalog(self.lake)

    def table(self, table_id, rows=3, partitions=()):
        self.catalog.create_table(table_id, ["day"] if partitions else (), primary_keys=["id"])
        for day in partitions or (None,):
            where = {"partition": {"day": day}} if day else {}
            for version in range(2):
                data = pa.table({"id": range(rows), "v": [f"{version}-{number}" for number in range(rows)]})
                self.catalog.append(table_id, data, **where)

    def submit(self, table_id, job_run_id, **fields):
        document = {"version": 1, "catalog": self.lake, "source_table_id": table_id, "job_run_id": job_run_id, **fields}
        open_queue(self.queue).send(json.dumps(document), table_id)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)
