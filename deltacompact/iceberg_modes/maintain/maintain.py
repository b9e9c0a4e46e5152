"""Maintains one table: expires snapshots, rewrites the manifests of a branch, removes orphans; in this order.

Expiring comes first, because it may remove branches; rewriting manifests adds a snapshot, which is too young to expire.
Orphans come last, because fewer snapshots are left to read. Files that the first two steps leave after a failure are
too young to count as orphans before a later run.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.metadata import MAIN, PUBLICATION, TableMetadata
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.journal.journal import FOLDER
from deltacompact.iceberg_modes.maintain.expire import ExpireSnapshots
from deltacompact.iceberg_modes.maintain.options import maintain_options, refuse_young_orphans
from deltacompact.iceberg_modes.maintain.orphans import RemoveOrphans
from deltacompact.iceberg_modes.maintain.result import MaintainResult
from deltacompact.iceberg_modes.maintain.rewrite_manifests import ManifestsResult, RewriteManifests
from deltacompact.storage.store_clock import agreed_now_s


@dataclass(frozen=True, slots=True)
class Maintain:
    """One call of maintain. `say` is told what happens.

    `now_ms` is the moment from which ages are counted; None: now, as the store's clock has it where ours disagrees. In
    a dry run, which writes nothing, ours counts, and `say` is told so.
    """

    table: IcebergTable
    branch: str = MAIN
    chosen: Mapping[str, Any] = field(default_factory=dict, hash=False)
    dry_run: bool = False
    now_ms: int | None = None
    say: Callable[[str], None] = lambda line: None

    def run(
        self, expire_snapshots: bool = False, rewrite_manifests: bool = False, remove_orphans: bool = False
    ) -> MaintainResult:
        """Do what is asked for. Raises InputError before any work, and what the single steps raise."""
        metadata = self.table.metadata
        ours_ms = int(time.time() * 1000) if self.now_ms is None else self.now_ms
        read_options = partial(
            maintain_options,
            self.chosen,
            metadata.properties,
            expires=expire_snapshots,
            rewrites_manifests=rewrite_manifests,
        )
        options = read_options(ours_ms)
        if not (expire_snapshots or rewrite_manifests or remove_orphans):
            raise InputError("nothing is asked for: expire snapshots, rewrite manifests, remove orphans")
        metadata.branch(self.branch)
        if expire_snapshots or remove_orphans:
            _refuse_without_gc(metadata, expire_snapshots)
        if remove_orphans:
            refuse_young_orphans(options)
        store = self.table.store
        manifests = RewriteManifests(store, self.branch, options.manifest_bytes, self.say)
        if rewrite_manifests:
            manifests.refuse_version_1(metadata)
        now_ms = self._agreed_ms(ours_ms) if expire_snapshots or remove_orphans else ours_ms
        options = read_options(now_ms)
        result = MaintainResult(metadata.table_id, self.branch, self.dry_run)
        if expire_snapshots:
            expiry = ExpireSnapshots(store, options, now_ms, self.say)
            result.expire_snapshots = expiry.plan(metadata) if self.dry_run else expiry.run(self.table)
        if rewrite_manifests:
            now = self.table.reloaded()
            if self.branch != MAIN and self.branch not in now.metadata.refs:
                result.rewrite_manifests = ManifestsResult(nothing_to_do=f"the branch {self.branch!r} has expired")
            elif self.dry_run:
                result.rewrite_manifests = manifests.plan(now.metadata)
            else:
                result.rewrite_manifests = manifests.run(now, uuid.uuid4().hex)
        if remove_orphans:
            orphans = RemoveOrphans(store, options, now_ms, self.table.io_properties, self.say)
            result.remove_orphans = orphans.run(self.table.reloaded(), self.dry_run)
        return result

    def _agreed_ms(self, ours_ms: int) -> int:
        if self.now_ms is not None:
            return ours_ms
        if self.dry_run:
            self.say("a dry run counts ages by the clock of this machine, a real run by the store's where they differ")
            return ours_ms
        return round(agreed_now_s(self.table.store, f"{FOLDER}clock-{uuid.uuid4().hex}", ours_ms / 1000) * 1000)


def _refuse_without_gc(metadata: TableMetadata, expires: bool) -> None:
    """The vacuum of a published stream expires the snapshots of its publication, and deletes files by what expired.
    Nobody but this finds what a crash left in the folders of the Iceberg table, where the stream has nothing."""
    if PUBLICATION in metadata.properties and not expires:
        return
    allowed = metadata.properties.get("gc.enabled", "true")
    if allowed.lower() != "true":  # as Iceberg's Java reads it: "no" and "1" are off, too
        raise InputError(
            f"table {metadata.table_id!r} has gc.enabled={allowed}: other tables may use its files, so none is deleted "
            "here"
        )
