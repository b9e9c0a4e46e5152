"""Policies: which tables are compacted, when, and how. One file, TOML or JSON.

    version = 1

    [[policies]]
    name = "orders"
    catalog = "s3://lake/tables"
    source_table_id = "orders"
    preset = "tiers"                    # light every five minutes, full at night

    [[policies]]
    name = "visits"
    catalog = "s3://lake/tables"
    source_table_id = "visits"
    cooldown = 600
    sealed = {keys = ["day"], window = "day", delay = 3600}
    when = [{deltas = 20}, {oldest_delta_age = 3600}, {files = 60, average_file_bytes_below = 33554432, idle = 172800}]

    [[policies]]
    name = "orders in Iceberg"
    catalog = "iceberg://prod"
    source_table_id = "db.orders"
    when = [{delete_files = 100}, {dead_row_share = 0.1}, {small_files = 50, compaction_age = 3600}]
    document = {mode = "rewrite", options = {"delete-file-threshold" = 1}, branch = "main"}

A policy submits if one condition of `when` holds: everything that this condition names. If several policies of a table
want to submit, the first does. Durations are seconds. `python -m sessions.watch.policy` writes the JSON Schema beside
this file.
"""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from deltacompact.base.errors import InputError
from deltacompact.base.model import ICEBERG
from deltacompact.base.wording import text_of
from deltacompact.iceberg_modes.modes import MODES, mode_named
from sessions.documents.instruction import Instruction, of_values
from sessions.documents.paths import no_such_field
from sessions.documents.refusal import RefusedDocument
from sessions.documents.streams import branch_of

SCHEMA_PATH = Path(__file__).with_name("policies.schema.json")
SMALL_BYTES = 32 << 20

_STRICT = ConfigDict(extra="forbid", frozen=True)
_DAY_S = 24 * 3600.0
Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Times = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
_CONDITIONS_OF_STREAMS = frozenset({"deltas", "delta_rows", "delta_bytes", "oldest_delta_age"})
_CONDITIONS_OF_ICEBERG = frozenset(
    {
        "delete_files",
        "delete_file_share",
        "dead_row_share",
        "small_files",
        "small_file_bytes",
        "new_bytes",
        "compaction_age",
    }
)
"""The other conditions are for both."""


class Condition(BaseModel):
    """All that it names has to hold for a partition, or for a branch of an Iceberg table."""

    model_config = _STRICT

    deltas: Count | None = Field(default=None, description="At least this many deltas are not compacted yet.")
    delta_rows: Count | None = Field(
        default=None, description="At least this many rows of deltas are not compacted yet."
    )
    delta_bytes: Count | None = Field(
        default=None, description="At least this many bytes of deltas are not compacted yet."
    )
    oldest_delta_age: Seconds | None = Field(
        default=None,
        description="Since the oldest delta was committed; in a sealed partition, since its window ended.",
    )
    files: Count | None = Field(
        default=None, description="At least this many files, compacted ones and those of deltas."
    )
    average_file_bytes_below: Count | None = Field(default=None, description="The average file is smaller than this.")
    idle: Seconds | None = Field(default=None, description="Since the last file was written.")
    delete_files: Count | None = Field(
        default=None, description="Iceberg: at least this many files of deletes, deletion vectors included."
    )
    delete_file_share: Share | None = Field(
        default=None, description="Iceberg: the share of delete files in all files."
    )
    dead_row_share: Share | None = Field(
        default=None, description="Iceberg: the share of rows that deletes name; an equality delete counts for one row."
    )
    small_files: Count | None = Field(default=None, description="Iceberg: at least this many small data files.")
    small_file_bytes: Count | None = Field(
        default=None,
        description="Iceberg: below this size a data file is small. Default: 75 % of the table's target size, half of "
        "that if it is clustered.",
    )
    new_bytes: Count | None = Field(default=None, description="Iceberg: written since the last compaction.")
    compaction_age: Seconds | None = Field(
        default=None, description="Iceberg: since the last compaction, or since the oldest snapshot there is."
    )

    layout_depth: Times | None = Field(
        default=None,
        description="At least this many compacted files hold a value of the columns by which the table is clustered, "
        "on average. 1: they lie well.",
    )
    layout_gain: Times | None = Field(
        default=None,
        description="The reads of the table's heat would save at least this many times what clustering costs.",
    )

    @model_validator(mode="after")
    def _names_something(self) -> Condition:
        if not self.model_dump(exclude_none=True):
            raise ValueError("a condition names at least one thing")
        if self.small_file_bytes is not None and self.small_files is None:
            raise ValueError("small_file_bytes says what small_files counts: name both")
        return self


def _is_time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise ValueError(f"no time zone {name[:60]!r}") from None
    return name


TimeZone = Annotated[str, AfterValidator(_is_time_zone)]


class Schedule(BaseModel):
    """Windows in which the policy may submit: each begins where `cron` says and lasts so long."""

    model_config = _STRICT

    cron: str = Field(description="Minute, hour, day of the month, month, day of the week.")
    timezone: TimeZone = Field(
        default="UTC", description="Of the IANA database; hours that a change of clocks skips or repeats too."
    )
    window: Annotated[float, Field(ge=60, le=31 * _DAY_S)] = Field(default=3600.0, description="Seconds.")
    once: bool = Field(default=True, description="At most one job run for each partition and window.")

    @model_validator(mode="after")
    def _is_cron(self) -> Schedule:
        try:
            next(CronSim(self.cron, datetime(2026, 1, 1, tzinfo=UTC)))
        except (CronSimError, StopIteration):
            raise ValueError(f"{self.cron[:60]!r} is no cron expression that ever comes true") from None
        return self


class SealedWindow(BaseModel):
    """Partitions of a window of time are left alone until it has ended, and for `delay` seconds after that."""

    model_config = _STRICT

    keys: Annotated[list[str], Field(min_length=1, max_length=6)] = Field(
        description="Partition keys that name the window, joined by '-'."
    )
    format: str | None = Field(default=None, description="As of strptime. Default: by the window, %Y-%m-%d for a day.")
    window: Literal["hour", "day", "month", "year"] = "day"
    timezone: TimeZone = "UTC"
    delay: Seconds = 0.0

    @property
    def pattern(self) -> str:
        return self.format or {"hour": "%Y-%m-%d-%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}[self.window]


class Policy(BaseModel):
    """When a table is compacted, and with which document."""

    model_config = _STRICT

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ,._-]{0,59}$")]
    catalog: Annotated[str, Field(min_length=1, max_length=1000)]
    source_table_id: Annotated[str, Field(min_length=1, max_length=1000)]
    when: Annotated[list[Condition], Field(max_length=20)] = Field(default=[], description="One of them has to hold.")
    preset: Literal["upsolver", "tiers"] | None = Field(
        default=None,
        description="upsolver: its three conditions. tiers: light every five minutes, full at night at 01:00 to 05:00.",
    )
    schedule: Schedule | None = None
    sealed: SealedWindow | None = None
    cooldown: Seconds = Field(
        default=60.0, description="Between two job runs of one partition; doubled after each failure."
    )
    document: dict[str, Any] = Field(default={}, description="Further fields of the instruction document.")

    @model_validator(mode="after")
    def _is_whole(self) -> Policy:
        if not self.when and self.preset is None and self.schedule is None:
            raise ValueError("a policy has conditions (when), a preset or a schedule")
        if self.preset == "tiers" and self.schedule is not None:
            raise ValueError("the preset tiers has its own schedules")
        self._check_kind()
        try:
            document = self.instruction([{}])
        except RefusedDocument as refused:
            raise ValueError(f"document.{refused}") from None
        if self.is_iceberg and self.asks_for_layout and not mode_named(document.mode).lays_out:
            others = ", ".join(mode.name for mode in MODES if mode.lays_out)
            raise ValueError(
                f"layout_depth and layout_gain: mode {document.chosen_mode} lays out no rows, {others} does"
            )
        return self

    def _check_kind(self) -> None:
        """Refuse a policy that mixes fields of delta streams and of Iceberg tables."""
        if self.is_iceberg and (self.preset is not None or self.sealed is not None):
            name = "sealed" if self.preset is None else f"the preset {self.preset}"
            raise ValueError(f"{name} is for delta streams, and {self.catalog[:60]!r} is an Iceberg catalog")
        of_streams, of_iceberg = (_CONDITIONS_OF_STREAMS, "delta streams"), (_CONDITIONS_OF_ICEBERG, "Iceberg tables")
        others, kind = of_streams if self.is_iceberg else of_iceberg
        for place, condition in enumerate(self.when):
            if wrong := sorted(others & condition.model_fields_set):
                raise ValueError(
                    f"when[{place}].{wrong[0]}: it is for {kind}, and {self.catalog[:60]!r} is none of them"
                )

    @property
    def is_iceberg(self) -> bool:
        return self.catalog.startswith(ICEBERG)

    @property
    def asks_for_layout(self) -> bool:
        """Whether a condition is about how files lie."""
        return any(condition.layout_depth is not None or condition.layout_gain is not None for condition in self.when)

    @property
    def branch(self) -> str | None:
        """The branch of an Iceberg table; None for a delta stream."""
        return str(branch_of(self.document)["branch"]) if self.is_iceberg else None

    @property
    def destination(self) -> str | None:
        """The other table that the document compacts into."""
        into = self.document.get("destination_compacted_table_id")
        return None if into in (None, self.source_table_id) else str(into)

    def instruction(self, partitions: list[dict[str, str | None]], job_run_id: str | None = None) -> Instruction:
        """The document that this policy submits. One for an Iceberg table names no partitions."""
        for taken in ("version", "catalog", "source_table_id", "partitions", "job_run_id"):
            if taken in self.document:
                raise RefusedDocument(taken, "the policy says it, not its document")
        named: dict[str, Any] = {"job_run_id": job_run_id} if job_run_id else {}
        named |= {} if self.is_iceberg else {"partitions": partitions}
        return of_values(
            {
                "version": 1,
                **named,
                "catalog": self.catalog,
                "source_table_id": self.source_table_id,
                **self.document,
            }
        )


class Policies(BaseModel):
    """The whole file."""

    model_config = _STRICT

    version: Literal[1]
    every: Annotated[float, Field(ge=1, le=31 * _DAY_S)] = Field(
        default=30.0, description="Seconds between two looks at the tables."
    )
    count_orphans_every: Annotated[float, Field(ge=60)] | None = Field(
        default=None,
        description="Seconds between two counts of what vacuum, or maintain --remove-orphans, would delete of a table, "
        "for its gauge. A count lists the whole table; one a look. Default: no counts.",
    )
    policies: Annotated[list[Policy], Field(min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _names_differ(self) -> Policies:
        names = [policy.name for policy in self.policies]
        if repeated := next((name for place, name in enumerate(names) if name in names[:place]), None):
            raise ValueError(f"two policies are called {repeated!r}")
        return self

    def expanded(self) -> list[Policy]:
        """Every policy with its preset spelled out, in order."""
        return [expanded for policy in self.policies for expanded in expand(policy)]


_KINDS = (Policies, Policy, Condition, Schedule, SealedWindow)
UPSOLVER = (
    Condition(files=60, average_file_bytes_below=SMALL_BYTES, idle=2 * _DAY_S),
    Condition(files=1000, average_file_bytes_below=SMALL_BYTES),
    Condition(average_file_bytes_below=SMALL_BYTES, idle=35 * _DAY_S),
)
"""Conditions that trigger compaction, as Upsolver's documentation has them: 32 MB are taken for 32 MiB."""


def expand(policy: Policy) -> list[Policy]:
    """A policy without preset, or two: the full tier comes first, so that at night it is the one that submits.

    Whether the light tier marks dead rows, the table's readers decide: readers of plain files would see them.
    """
    match policy.preset:
        case "upsolver":
            return [policy.model_copy(update={"preset": None, "when": [*policy.when, *UPSOLVER]})]
        case "tiers":
            kept = {"preset": None, "when": policy.when or [Condition(deltas=1)]}
            full = policy.model_copy(
                update={
                    **kept,
                    "name": f"{policy.name}, full",
                    "when": [],
                    "schedule": Schedule(cron="0 1 * * *", window=4 * 3600.0),
                    "document": {**policy.document, "purge": True},
                }
            )
            often = policy.model_copy(
                update={**kept, "name": f"{policy.name}, light", "cooldown": max(policy.cooldown, 300.0)}
            )
            return [full, often]
        case _:
            return [policy]


def read_policies(path: str) -> Policies:
    """The file. Raises InputError, in one line that names the field."""
    try:
        data = Path(path).read_bytes()
        values = json.loads(data) if path.endswith(".json") else tomllib.loads(data.decode())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is neither TOML nor JSON: {' '.join(str(error).split())[:200]}") from None
    try:
        return Policies.model_validate(values)
    except ValidationError as refused:
        first = refused.errors(include_url=False)[0]
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]).lstrip(".")
        said = text_of(first["msg"].removeprefix("Value error, "))[:300]
        if first["type"] == "missing":
            said = "it is missing: write version = 1" if place == "version" else "it is missing"
        if first["type"] == "extra_forbidden":
            said = no_such_field(str(first["loc"][-1]), [name for kind in _KINDS for name in kind.model_fields])
        raise InputError(f"{path}: {place or 'the file'}: {said}") from None


def json_schema() -> str:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Policies.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA_PATH.write_text(json_schema())
