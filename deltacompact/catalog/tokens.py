"""Producer tokens: a batch that is committed twice counts once, for ever.

append(token="etl:7")   committed at position 40
append(token="etl:7")   known: position 40 again, nothing is written
append(token="etl:6")   known: a producer counts upwards
append(token="nightly") of no producer: known until it expires
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from deltacompact.model import Commit

TOKEN_RETENTION_S = 30 * 24 * 3600
"""How long a token that is not `producer:n` is remembered once its commit was compacted, in seconds."""

_PRODUCER = re.compile(r"(?s)(?P<producer>.+):(?P<n>\d{1,18})")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Known tokens: the greatest n of each producer, and the others with position and time of their compaction."""

    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    others: dict[str, tuple[int, int]] = field(default_factory=dict)

    def position_of(self, token: str | None) -> int | None:
        """The stream position at which the token (or a later one of its producer) was committed, or None."""
        if token is None:
            return None
        if match := _PRODUCER.fullmatch(token):
            n, position = self.producers.get(match["producer"], (-1, 0))
            return position if int(match["n"]) <= n else None
        known = self.others.get(token)
        return known[0] if known else None

    def including(self, commits: Iterable[Commit], now_ms: int | None = None) -> Tokens:
        """These tokens and those of the commits, which are compacted `now_ms` (None: not yet)."""
        producers, others = dict(self.producers), dict(self.others)
        for commit in commits:
            if commit.token is None:
                continue
            if match := _PRODUCER.fullmatch(commit.token):
                known = producers.get(match["producer"], (-1, 0))
                producers[match["producer"]] = max(known, (int(match["n"]), commit.last_position))
            else:
                others[commit.token] = (commit.last_position, commit.time_ms if now_ms is None else now_ms)
        return Tokens(producers, others)

    def unexpired(self, now_ms: int) -> Tokens:
        """Without those that were compacted too long ago."""
        oldest_ms = now_ms - TOKEN_RETENTION_S * 1000
        return Tokens(self.producers, {t: known for t, known in self.others.items() if known[1] >= oldest_ms})

    def to_json(self) -> dict[str, Any]:
        return {"producers": self.producers, "others": self.others}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Tokens:
        def pairs(known: dict[str, Any]) -> dict[str, tuple[int, int]]:
            return {token: (pair[0], pair[1]) for token, pair in known.items()}

        return cls(pairs(value["producers"]), pairs(value["others"]))
