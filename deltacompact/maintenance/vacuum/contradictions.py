"""Objects that contradict a stream's log: signs that another program removed log entries or wrote a hint.

    stream/hint.json                   names 2-77…, but no seal leads to it
    checkpoints/0/…0300.json           has 300 entries, but version 0 has 214
    stream/1-50…/…03.json              a writer's commit, but no seal leads to version 1-50…
    sessions/5c…/published.json        says that the session published 1-50…, but no seal leads to it

A log that lost its last entries looks whole, so other objects must give it away. This evidence is gathered before the
log is read: entries that are put in between only add to the log, and make no false contradiction.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deltacompact.base.errors import NotFoundError
from deltacompact.delta_streams.log.log import StreamLog
from deltacompact.storage.objects import ObjectStat


@dataclass(frozen=True, slots=True)
class Evidence:
    """The objects beside a log, read before the log."""

    hinted: str | None
    published: dict[str, str]
    """Versions that sessions recorded as published, by the path of the record."""
    records: tuple[str, ...]
    """All records that name a version, `known_records` included."""
    checkpoints: tuple[ObjectStat, ...]
    entries: tuple[ObjectStat, ...]
    """Log entries of all versions, even of versions that no seal leads to."""

    @classmethod
    def of(cls, log: StreamLog, listed: Iterable[ObjectStat], known_records: Collection[str] = ()) -> Evidence:
        """`listed`: the objects below the stream's folder. `known_records` are not read: an earlier vacuum did."""
        paths, stats = log.paths, list(listed)
        published = [
            stat.path for stat in stats if paths.is_record(stat.path) and stat.path.endswith("/published.json")
        ]
        records = [path for path in published if paths.is_ours(path) and path not in known_records]
        recorded = {path: _text_field(log, path, "compacted_stream_version") for path in records}
        return cls(
            _text_field(log, paths.hint, "version"),
            {path: version for path, version in recorded.items() if version},
            (*known_records, *(path for path, version in recorded.items() if version)),
            tuple(stat for stat in stats if paths.checkpoint_of(stat.path)),
            tuple(stat for stat in stats if paths.entry_of(stat.path)),
        )

    def versions(self, log: StreamLog) -> set[str]:
        """Every version that has an entry."""
        return {found[0] for stat in self.entries if (found := log.paths.entry_of(stat.path))}


def contradictions(log: StreamLog, evidence: Evidence, tails: Mapping[str, int]) -> Iterator[str]:
    """One line for each contradiction. `tails`: the versions of the chain, read after the evidence was gathered."""
    hinted = evidence.hinted
    if hinted and hinted not in tails and hinted in evidence.versions(log):
        yield (
            f"{log.paths.hint} names version {hinted}, but no seal leads to it: restore the seal, or delete the hint "
            "if you know that it is wrong"
        )
    for record, version in evidence.published.items():
        if version not in tails:
            yield f"{record} says that version {version} was released, but no seal leads to it: restore the seal"
    for stat in evidence.checkpoints:
        version, tail = log.paths.checkpoint_of(stat.path) or ("", 0)
        if version in tails and tail > tails[version]:
            yield f"{stat.path} was made of {tail} entries, but the log has {tails[version]}: restore the others"
    for version in sorted(evidence.versions(log) - tails.keys()):
        # The version may have been released after the chain was read: then a new read of the chain has it.
        if (path := log.objects.sign_of_life(version)) and version not in {state.version for state in log.chain()}:
            yield f"{path} was put into a released version, but no seal leads to {version}: restore the seal"


def _text_field(log: StreamLog, path: str, field: str) -> str | None:
    """The text of a field in a stored JSON object; None: the object or the field is missing."""
    try:
        document: Any = json.loads(log.store.get(path))
    except (NotFoundError, ValueError):
        return None
    found = document.get(field) if isinstance(document, dict) else None
    return found if isinstance(found, str) else None
