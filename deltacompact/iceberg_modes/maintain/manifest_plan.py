"""Chooses the manifests that are rewritten together: a pure function of the lines of a manifest list.

    target 8 MB, spec 1, data     8 MB days 1..4    8 MB days 4..9    1 MB day 9    1 MB day 10    1 MB day 11
    days 9 to 11 are rewritten    two small manifests can be saved; the large ones do not reach into days 9 to 11
    with a small one of day 2     all are rewritten: its neighbours must be parted at new days

A manifest is small if its live entries take less than 75 % of the target. Manifests of a spec and of one content are
rewritten if that leaves fewer small ones, or if large ones overlap: a scan of one partition would read all of them.
Manifests that overlap what is rewritten are rewritten with it. So the result has one small manifest at most and no
overlap, and the next run finds nothing to do.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltacompact.iceberg.table.content_files import Manifest, ManifestContent, Spec
from deltacompact.iceberg.table.partition_summaries import bound_value

SMALL = 0.75
"""A manifest below this share of the target is small."""

Kind = tuple[int, ManifestContent]
"""Manifests of one spec and one content can be rewritten together."""


@dataclass(frozen=True, slots=True)
class ManifestGroup:
    """Manifests that are rewritten together, in the order of their list."""

    sources: tuple[Manifest, ...]

    @property
    def kind(self) -> Kind:
        return self.sources[0].spec_id, self.sources[0].content

    @property
    def bytes(self) -> int:
        return sum(source.file_bytes for source in self.sources)

    @property
    def entries(self) -> int:
        return sum(live_files(source) for source in self.sources)


def plan_manifests(
    listed: Sequence[Manifest], specs: Mapping[int, Spec], target_bytes: int, only: Collection[Kind] | None = None
) -> list[ManifestGroup]:
    """The groups of manifests to rewrite, of some kinds only if `only` is given. Empty: there is nothing to do."""
    by_kind: dict[Kind, list[Manifest]] = defaultdict(list)
    for manifest in listed:
        by_kind[manifest.spec_id, manifest.content].append(manifest)
    groups = []
    for kind, manifests in sorted(by_kind.items()):
        if only is None or kind in only:
            chosen = _chosen(manifests, _ranges(manifests, specs[kind[0]]), target_bytes)
            if chosen:
                groups.append(ManifestGroup(tuple(manifest for manifest in manifests if manifest.path in chosen)))
    return groups


def live_files(manifest: Manifest) -> int:
    return manifest.added_files + manifest.existing_files


Range = tuple[Any, Any]
"""The least and the greatest value of the spec's first field in a manifest."""


def _chosen(manifests: Sequence[Manifest], ranges: Mapping[str, Range], target_bytes: int) -> set[str]:
    """The paths of the manifests to rewrite."""
    live_bytes = {manifest.path: _live_bytes(manifest) for manifest in manifests}
    small = {path for path, size in live_bytes.items() if size < SMALL * target_bytes}
    large = {path: ranges[path] for path in live_bytes if path not in small and path in ranges}
    chosen = _overlapping(large)
    if len(small) > math.ceil(sum(live_bytes[path] for path in small) / target_bytes) or chosen:
        chosen |= small
    return _with_neighbours(chosen, ranges)


def _live_bytes(manifest: Manifest) -> float:
    files = live_files(manifest)
    return manifest.file_bytes * files / (files + manifest.deleted_files) if files else 0


def _overlapping(ranges: Mapping[str, Range]) -> set[str]:
    """Those whose range overlaps another one's. Ranges that share one end only do not overlap."""
    found: set[str] = set()
    before: tuple[str, Any] | None = None
    for path, (low, high) in sorted(ranges.items(), key=lambda item: item[1]):
        if before and low < before[1] and high > low:
            found |= {before[0], path}
        if before is None or high > before[1]:
            before = path, high
    return found


def _with_neighbours(chosen: set[str], ranges: Mapping[str, Range]) -> set[str]:
    """The chosen ones and all that reach into the range that they span together."""
    while spanned := [ranges[path] for path in chosen if path in ranges]:
        low, high = min(low for low, _ in spanned), max(high for _, high in spanned)
        more = {path for path, (first, last) in ranges.items() if first < high and last > low} - chosen
        if not more:
            break
        chosen = chosen | more
    return chosen


def _ranges(manifests: Sequence[Manifest], spec: Spec) -> dict[str, Range]:
    """Of manifests that have bounds of the spec's first field. Null and NaN have none."""
    if not spec.fields:
        return {}
    value: Callable[[bytes], Any] = bound_value(spec.fields[0])
    found = {}
    for manifest in manifests:
        first = manifest.partitions[0] if manifest.partitions else {}
        low, high = first.get("lower_bound"), first.get("upper_bound")
        if low is not None and high is not None:
            found[manifest.path] = value(low), value(high)
    return found
