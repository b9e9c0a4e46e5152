"""How a trigger's job runs ended whose records have expired, or which were refused and never had one. Of a record, the
end is written before it is deleted.

watch/5c5c…/00000000000000000003.json    slot 3 of a table's submissions: it named job run watch-5c5c…-3
job-runs/watch-5c5c…-3/…                 expired
watch-ends/5c5c…/3                       "succeeded": it was run, so no watcher sends its document again
watch-ends/5c5c…/4                       "failed": its document is a dead letter

A watcher that has taken an end into its history removes it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable

from deltacompact.storage.numbered import numbered_path
from deltacompact.storage.objects import ObjectStore, is_there
from sessions.base.model import JobRunState

ENDS, HISTORIES = "watch-ends/", "watch-history/"
_SUBMITTED = re.compile(r"watch-(?P<table>[0-9a-f]{16})-(?P<slot>[0-9]{1,20})")


def submitted_id(table: str, slot: int) -> str:
    """The job run that a slot names; `table` is the digest of the table's name."""
    return f"watch-{table}-{slot}"


def slots_folder(table: str) -> str:
    return f"watch/{table}/"


def slot_path(table: str, slot: int) -> str:
    return numbered_path(slots_folder(table), slot)


def remember_end(store: ObjectStore, job_run_id: str, state: JobRunState) -> None:
    """Write how a job run ended, if a trigger submitted it and its history does not have the end yet."""
    named = _SUBMITTED.fullmatch(job_run_id)
    if named is not None and is_there(store, slot_path(named["table"], int(named["slot"]))):
        store.put(f"{_folder(named['table'])}{int(named['slot'])}", state.value.encode())


def remembered_ends(store: ObjectStore, table: str) -> dict[int, JobRunState]:
    """The ends that are written here, by the table's slots. Foreign objects are skipped."""
    folder, ends = _folder(table), {}
    for stat in store.list(folder):
        slot = stat.path.removeprefix(folder)
        if slot.isdecimal():
            with contextlib.suppress(ValueError):
                ends[int(slot)] = JobRunState(store.get(stat.path).decode())
    return ends


def forget_ends(store: ObjectStore, table: str, slots: Iterable[int]) -> None:
    store.delete([f"{_folder(table)}{slot}" for slot in slots])


def _folder(table: str) -> str:
    return f"{ENDS}{table}/"
