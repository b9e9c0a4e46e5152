"""The options of `maintain`, under the names that people know from Iceberg's procedures and table properties.

    {"older-than": "7d", "retain-last": "10"}  ->  MaintainOptions(…)

A property of the table is the default of the option that has its name. Ages are spans ("90m", "36h", "7d") or moments
("2026-11-01T00:00:00Z"); those that are called -ms are milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.base.wording import unknown_option

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ORPHAN_AGE_MIN_MS = DAY_MS
"""A writer that is at work needs its files although no snapshot names them yet."""


@dataclass(frozen=True, slots=True)
class MaintainOptions:
    """Ages are milliseconds, counted from now.

    manifest_bytes        about the size of the manifests that are written
    snapshot_age_ms       a branch's snapshots that are older expire, if neither the branch nor `keep_snapshots` says no
    keep_snapshots        so many of the newest snapshots of a branch stay
    ref_age_ms            branches and tags whose snapshot is older are removed (None: never), if they do not say more
    orphan_age_ms         orphans that are older are removed
    orphans_in            the folder that is searched for orphans (None: the table's location)
    unlisted_allowed      orphans are removed although the catalog does not show all of its tables
    """

    manifest_bytes: int = 8 << 20
    snapshot_age_ms: int = 5 * DAY_MS
    keep_snapshots: int = 1
    ref_age_ms: int | None = None
    orphan_age_ms: int = 3 * DAY_MS
    orphans_in: str | None = None
    unlisted_allowed: bool = False


_PROPERTIES = {
    "commit.manifest.target-size-bytes": "manifest_bytes",
    "history.expire.max-snapshot-age-ms": "snapshot_age_ms",
    "history.expire.min-snapshots-to-keep": "keep_snapshots",
    "history.expire.max-ref-age-ms": "ref_age_ms",
}
UNLISTED_ALLOWED = "allow-unlisted-tables"
_NAMES = (*_PROPERTIES, "older-than", "retain-last", "location", "allow-younger-than-24h", UNLISTED_ALLOWED)
_SPAN = re.compile(r"(\d{1,9})\s*(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": HOUR_MS, "d": DAY_MS}


def maintain_options(chosen: Mapping[str, Any], properties: Mapping[str, str], now_ms: int) -> MaintainOptions:
    """The options by their names. Raises InputError naming the option.

    `older-than` is the age of expired snapshots and of orphans; orphans may be younger than 24 hours only with
    `allow-younger-than-24h`.
    """
    if unknown := [name for name in chosen if name not in _NAMES]:
        raise InputError(unknown_option(unknown[0], _NAMES))
    for name, other in (
        ("older-than", "history.expire.max-snapshot-age-ms"),
        ("retain-last", "history.expire.min-snapshots-to-keep"),
    ):
        if name in chosen and other in chosen:
            raise InputError(f"options {name} and {other} are the same: give one of them")
    values: dict[str, Any] = {}
    for name, field in _PROPERTIES.items():
        if (value := chosen.get(name, properties.get(name))) is not None:
            values[field] = _whole(name, value)
    if "retain-last" in chosen:
        values["keep_snapshots"] = _whole("retain-last", chosen["retain-last"])
    if "older-than" in chosen:
        values["snapshot_age_ms"] = values["orphan_age_ms"] = _age_ms("older-than", chosen["older-than"], now_ms)
    if "location" in chosen:
        values["orphans_in"] = str(chosen["location"])
    values["unlisted_allowed"] = _flag(UNLISTED_ALLOWED, chosen)
    return MaintainOptions(**values)


def refuse_young_orphans(options: MaintainOptions, chosen: Mapping[str, Any]) -> None:
    """Raise InputError if files of writers that are at work could be taken for orphans."""
    if options.orphan_age_ms < ORPHAN_AGE_MIN_MS and not _flag("allow-younger-than-24h", chosen):
        raise InputError(
            "option older-than is less than 24 hours: files of writers that are at work could be removed as orphans. "
            "If none is at work, add allow-younger-than-24h=true"
        )


def _flag(name: str, chosen: Mapping[str, Any]) -> bool:
    text = str(chosen.get(name, "false")).strip().lower()
    if text not in ("true", "false"):
        raise InputError(f"option {name}: {text!r} is neither true nor false")
    return text == "true"


def _whole(name: str, value: Any) -> int:
    text = str(value).strip()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InputError(f"{name} is {value!r}: it must be a whole number of at least 1")
    return int(text)


def _age_ms(name: str, value: Any, now_ms: int) -> int:
    text = str(value).strip()
    if span := _SPAN.fullmatch(text):
        return int(span[1]) * _UNIT_MS[span[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"option {name}: {value!r} is neither a span (36h, 7d) nor a moment (2026-11-01T00:00:00Z)"
        ) from None
    at_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if at_ms > now_ms:
        raise InputError(f"option {name}: {value} has not come yet")
    return now_ms - at_ms
