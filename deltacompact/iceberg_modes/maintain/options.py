"""The options of `maintain`, under the names that people know from Iceberg's procedures and table properties.

    {"older-than": "7d", "retain-last": "10"}  ->  MaintainOptions(…)

A property of the table is the default of the option that has its name. Ages are spans ("90m", "36h", "7d") or moments
("2026-11-01T00:00:00Z"); those that are called -ms are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.base.options import option
from deltacompact.iceberg_modes.options import FLAG, TEXT, Age, Whole, chosen_values

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ORPHAN_AGE_MIN_MS = DAY_MS
"""A writer that is at work needs its files although no snapshot names them yet."""
UNLISTED_ALLOWED = "allow-unlisted-tables"
YOUNGER_ALLOWED = "allow-younger-than-24h"
OLDER_THAN = "older-than"
SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
KEEP_SNAPSHOTS, REF_AGE = "history.expire.min-snapshots-to-keep", "history.expire.max-ref-age-ms"
MANIFEST_BYTES = "commit.manifest.target-size-bytes"
_OF_EXPIRY = (SNAPSHOT_AGE, KEEP_SNAPSHOTS, REF_AGE)
_OF_PROPERTY = Whole(may_be_property=True)
_OF_PROPERTY_OR_ZERO = Whole(0, may_be_property=True)


@dataclass(frozen=True, slots=True)
class MaintainOptions:
    """Ages are milliseconds, counted from now. `older-than` gives the age of snapshots, too. None: never, nowhere."""

    manifest_bytes: int = option(
        MANIFEST_BYTES,
        _OF_PROPERTY,
        8 << 20,
        "about the size of a manifest",
        unit="bytes",
        says="the table's, else 8 MiB",
    )
    snapshot_age_ms: int = option(
        SNAPSHOT_AGE,
        _OF_PROPERTY_OR_ZERO,
        5 * DAY_MS,
        "older snapshots of a branch expire, if neither the branch nor `retain-last` keeps them",
        unit="ms",
        says="the table's, else 5 days",
    )
    keep_snapshots: int = option(
        KEEP_SNAPSHOTS,
        _OF_PROPERTY,
        1,
        "how many of the newest snapshots of a branch stay at least",
        says="the table's, else 1",
        also=("retain-last",),
    )
    ref_age_ms: int | None = option(
        REF_AGE,
        _OF_PROPERTY,
        None,
        "branches and tags whose snapshot is older are removed, if they do not say more themselves",
        unit="ms",
        says="the table's, else never",
    )
    orphan_age_ms: int = option(
        OLDER_THAN,
        Age(),
        3 * DAY_MS,
        "how old snapshots and orphans must be to go: a span (`90m`, `36h`, `7d`) or a moment (`2026-11-01T00:00:00Z`)",
        says="snapshots 5 days, orphans 3 days",
    )
    orphans_in: str | None = option(
        "location", TEXT, None, "the folder that is searched for orphans", says="the table's"
    )
    unlisted_allowed: bool = option(
        UNLISTED_ALLOWED,
        FLAG,
        False,
        "remove orphans although the catalog does not list or load all of its tables; set it only if no other table "
        "has files in the folder",
    )
    younger_allowed: bool = option(
        YOUNGER_ALLOWED, FLAG, False, "orphans may be younger than a day; set it only if no writer is at work"
    )


def maintain_options(
    chosen: Mapping[str, Any],
    properties: Mapping[str, str],
    now_ms: int,
    expires: bool = True,
    rewrites_manifests: bool = True,
) -> MaintainOptions:
    """The options by their names. Raises InputError naming the option.

    A bad property of the table counts only for a step that is asked for, and that no option tells otherwise.
    """
    if OLDER_THAN in chosen and SNAPSHOT_AGE in chosen:
        raise InputError(f"options {OLDER_THAN} and {SNAPSHOT_AGE} are the same: give one of them")
    names = [*(_OF_EXPIRY if expires else ()), *([MANIFEST_BYTES] if rewrites_manifests else ())]
    told = {*chosen, *([SNAPSHOT_AGE] if OLDER_THAN in chosen else ())}
    of_table = {name: properties[name] for name in names if name in properties and name not in told}
    values = chosen_values(MaintainOptions, of_table) | chosen_values(MaintainOptions, chosen)
    if OLDER_THAN in chosen:
        values["snapshot_age_ms"] = values["orphan_age_ms"] = _age_ms(values["orphan_age_ms"], chosen, now_ms)
    return MaintainOptions(**values)


def refuse_young_orphans(options: MaintainOptions) -> None:
    """Raise InputError if files of writers that are at work could be taken for orphans."""
    if options.orphan_age_ms < ORPHAN_AGE_MIN_MS and not options.younger_allowed:
        raise InputError(
            f"option {OLDER_THAN} is less than 24 hours: files of writers that are at work could be removed as "
            f"orphans. If none is at work, add {YOUNGER_ALLOWED}=true"
        )


def _age_ms(age: float | datetime, chosen: Mapping[str, Any], now_ms: int) -> int:
    """Milliseconds from a span or a moment until now."""
    if not isinstance(age, datetime):
        return round(age * 1000)
    at_ms = int(age.timestamp() * 1000)
    if at_ms > now_ms:
        raise InputError(f"option {OLDER_THAN}: {chosen[OLDER_THAN]} has not come yet")
    return now_ms - at_ms
