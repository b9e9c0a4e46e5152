"""How often, and how long, a commit is tried: the table's `commit.retry.…` properties, with defaults of our own.

commit.retry.num-retries         100      an append every second must not starve us
commit.retry.min-wait-ms         100      doubled with each wait
commit.retry.max-wait-ms         5,000
commit.retry.total-timeout-ms    30 min

Delta tables that show compacted rows are committed to with the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deltacompact.base.backoff import wait_s
from deltacompact.base.errors import InputError

UNANSWERED_MAX = 8
"""After so many attempts without an answer we give up, and keep every file that they name."""
ATTEMPTS_WITHOUT_WAIT = 5
"""So many attempts follow each other at once if each was lost to another commit: while we wait, others go on."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Attempts, waits between them, and seconds for all of them."""

    attempts: int = 101
    wait_first_s: float = 0.1
    wait_longest_s: float = 5.0
    total_s: float = 1800.0

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Patience:
        """The patience that a table's properties ask for. Raises InputError for a property that is no whole number."""
        chosen = cls()
        return cls(
            _count(properties, "commit.retry.num-retries", chosen.attempts - 1) + 1,
            _count(properties, "commit.retry.min-wait-ms", round(chosen.wait_first_s * 1000)) / 1000,
            _count(properties, "commit.retry.max-wait-ms", round(chosen.wait_longest_s * 1000)) / 1000,
            _count(properties, "commit.retry.total-timeout-ms", round(chosen.total_s * 1000)) / 1000,
        )

    def wait_s(self, attempt: int, is_lost: bool) -> float:
        """How long to wait after this attempt, the first being 1. `is_lost`: another commit came first.

        Random, so that two writers do not keep in step.
        """
        waits, at_once = divmod(attempt, ATTEMPTS_WITHOUT_WAIT) if is_lost else (attempt, 0)
        if at_once:
            return 0.0
        return wait_s(waits - 1, self.wait_first_s, self.wait_longest_s, least=0.5)


def _count(properties: Mapping[str, str], name: str, default: int) -> int:
    value = str(properties.get(name, default)).strip()
    if not value.isdecimal():
        raise InputError(f"the table has {name} {value!r}, which is not a whole number")
    return int(value)
