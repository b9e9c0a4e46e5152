"""What triggers have left of tables that no policy names any more.

watch-decisions/5c5c….json                    written again twice a day, as long as a watcher looks at the table
watch/5c5c…/, watch-history/5c5c…/, …         what was submitted for it: needed as long as a record has one of its ids
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from deltacompact.storage.numbered import listed
from deltacompact.storage.objects import ObjectStore
from sessions.records.decisions import DECISIONS
from sessions.records.trigger_ends import ENDS, HISTORIES, slots_folder, submitted_id

_DECISIONS = re.compile(rf"{DECISIONS}(?P<table>[0-9a-f]{{16}})\.json")


def unwatched(store: ObjectStore, before_s: float, job_runs: Container[str]) -> Iterator[list[str]]:
    """The objects of each such table. The last one is to be deleted after the others: by it the table is found.

    `before_s`: no watcher has looked at it since, by the store's clock. `job_runs`: the ids that have a record.
    """
    for stat in store.list(DECISIONS):
        named = _DECISIONS.fullmatch(stat.path)
        if named is None or stat.modified_s > before_s:
            continue
        table = named["table"]
        slots = listed(store, slots_folder(table))
        if any(submitted_id(table, slot) in job_runs for slot in slots):
            continue
        folders = (f"{HISTORIES}{table}/", f"{ENDS}{table}/")
        others = [found.path for folder in folders for found in store.list(folder)]
        yield [*(found.path for found in slots.values()), *others, stat.path]
