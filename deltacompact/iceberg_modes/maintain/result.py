"""What a maintenance did, and in words.

snapshots: 12 snapshots and 0 branches and tags expired
  deleted: 12 manifest lists, 30 manifests, 1.1 MiB
manifests: 40 manifests -> 2, 1 kept; 3,000 entries, 4.2 MiB rewritten
orphans: 3 of 120 files, 2.0 MiB, removed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltacompact.base.notebooks import UsersWords, html_table
from deltacompact.base.wording import counted, size
from deltacompact.iceberg_modes.maintain.expire import ExpireResult
from deltacompact.iceberg_modes.maintain.orphans import OrphansResult
from deltacompact.iceberg_modes.maintain.rewrite_manifests import ManifestsResult

_FOLDERS_SHOWN = 10
"""How many folders of other tables are named."""


@dataclass(slots=True, repr=False)
class MaintainResult(UsersWords):
    """What each kind of maintenance did, or would do in a dry run. None: it was not asked for."""

    table_id: str
    branch: str
    dry_run: bool
    expire_snapshots: ExpireResult | None = None
    rewrite_manifests: ManifestsResult | None = None
    remove_orphans: OrphansResult | None = None

    def __repr__(self) -> str:
        did = []
        if self.expire_snapshots is not None:
            did.append(f"{counted(len(self.expire_snapshots.snapshots), 'snapshot')} expired")
        if self.rewrite_manifests is not None:
            did.append(f"{counted(self.rewrite_manifests.replaced, 'manifest')} rewritten")
        if self.remove_orphans is not None:
            did.append(f"{counted(self.remove_orphans.files, 'orphan')} removed")
        return f"{'dry run' if self.dry_run else 'maintenance'} of {self.table_id!r}: {', '.join(did)}"

    def _repr_html_(self) -> str:
        """What `maintain` prints, line by line: for notebooks."""
        return html_table(repr(self), ("what was done",), [(line,) for line in self._lines()])

    def __str__(self) -> str:
        """What `maintain` prints."""
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        would = "would be " if self.dry_run else ""
        lines = []
        if (expired := self.expire_snapshots) is not None:
            refs = counted(len(expired.refs), "branch or tag", "branches and tags")
            gone = f"{counted(len(expired.snapshots), 'snapshot')} and {refs}"
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in expired.files.items()) or "no files"
            lines.append(f"snapshots: {expired.nothing_to_do or f'{gone} {would}expired'}")
            if expired.nothing_to_do is None:
                lines.append(f"  {would}deleted: {kinds}, {size(expired.bytes)}")
                lines += _paths(expired.paths, sum(expired.files.values()))
            if expired.kept_outside:
                lines.append(f"  not deleted: {counted(expired.kept_outside, 'file')} outside of the table's folders")
            if in_doubt := expired.in_doubt:
                doubtful = f"{counted(len(in_doubt), 'file')} that may be others by another name"
                lines.append(f"  not deleted: {doubtful} ({in_doubt[0]})")
        if (found := self.rewrite_manifests) is not None:
            into = f"{counted(found.replaced, 'manifest')} -> {found.created:,}, {found.kept:,} kept"
            entries = f"{counted(found.entries, 'entry', 'entries')}, {size(found.bytes)}"
            lines.append(f"manifests: {found.nothing_to_do or f'{into}; {entries} {would}rewritten'}")
        if (orphans := self.remove_orphans) is not None:
            removed = f"{orphans.files:,} of {counted(orphans.listed, 'file')}, {size(orphans.bytes)}, {would}removed"
            lines.append(f"orphans: {orphans.nothing_to_do or removed}")
            lines += _paths(orphans.paths, orphans.files)
            if orphans.unfinished:
                lines.append(f"  {counted(orphans.unfinished, 'write')} that was never finished, {would}removed")
            if orphans.at_work:
                lines.append(f"  not touched: {counted(orphans.at_work, 'file')} of sessions that can be resumed")
            others = orphans.other_tables
            lines += [f"  not touched: {folder}, of another table" for folder in others[:_FOLDERS_SHOWN]]
            if len(others) > _FOLDERS_SHOWN:
                lines.append(f"  not touched: {len(others) - _FOLDERS_SHOWN:,} more folders of other tables")
        return lines


def _paths(shown: Sequence[str], count: int) -> list[str]:
    """A line for each of the first paths, and one for the rest."""
    rest = [f"  and {count - len(shown):,} more"] if count > len(shown) else []
    return [f"  {path}" for path in shown] + rest
