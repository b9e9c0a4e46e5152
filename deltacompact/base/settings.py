"""Everything that a caller may choose about a compaction. Each default and each check is defined once, here.

    Settings     how a compaction runs: compact(…, settings=Settings(executor="ray"))
    Options      the settings, and the other parameters of compact(): rows_per_compacted_file, purge, …

None means: measure it on the machine or cluster, or decide it by the size of the table.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.limits import LIMITS, Limits
from deltacompact.base.model import ContentType
from deltacompact.base.options import Kind, documented, option

EXECUTORS = ("auto", "ray", "local")
COUNT_MAX = 2**53
"""No table has more rows or bytes. A float cannot hold every larger whole number."""
HASH_BUCKETS_MAX = 1_000_000
AMPLIFICATION_MAX = 4.0
"""Layouts rewrite at most so many times what came."""


_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")


def check_codec(argument: str, name: str | None) -> None:
    """Refuse a codec that pyarrow cannot write, before a compaction reads anything."""
    if expect.text_or_none(argument, name) not in (None, *_CODECS, "lz4_raw"):
        raise InputError(f"{argument} {name!r} is not a codec of pyarrow ({', '.join(_CODECS[:-1])} or {_CODECS[-1]})")


def at_least(name: str, value: int, minimum: int, maximum: int | None = None) -> int:
    """The value. Raises InputError, with the name, if it is not a whole number in the range."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise InputError(f"{name} is {value!r}, it must be a whole number of at least {minimum}")
    if maximum is not None and value > maximum:
        raise InputError(f"{name} is {value!r}, it must be {maximum} at most")
    return value


# Kinds


class Checking(Kind, ABC):
    """A kind of values that are given as they are."""

    @abstractmethod
    def check(self, name: str, value: Any) -> None:
        """Raise InputError, naming the option, for a value of another kind."""


@dataclass(frozen=True, slots=True)
class Count(Checking):
    """A whole number."""

    least: int = 1
    most: int = COUNT_MAX

    def check(self, name: str, value: Any) -> None:
        if value is None:
            raise InputError(f"{name} is None, it must be a number")
        at_least(name, value, self.least, self.most)


@dataclass(frozen=True, slots=True)
class Between(Checking):
    """A number in a range. `words`: which."""

    words: str
    least: float = 0.0
    most: float = math.inf
    is_open: bool = False

    def check(self, name: str, value: Any) -> None:
        number = expect.number(name, value)
        if not self.least <= number <= self.most or (self.is_open and number == self.least):
            raise InputError(f"{name} is {value!r}, it must {self.words}")


@dataclass(frozen=True, slots=True)
class OneOfTexts(Checking):
    """One of some words."""

    words: tuple[str, ...]

    def check(self, name: str, value: Any) -> None:
        if value not in self.words:
            raise InputError(f"{name} {value!r} is not one of {', '.join(self.words)}")


@dataclass(frozen=True, slots=True)
class CheckedBy(Checking):
    """What a function does not refuse. It is given the option's name and the value."""

    function: Callable[[str, Any], Any]

    def check(self, name: str, value: Any) -> None:
        self.function(name, value)


COUNT, COUNT_OR_ZERO, RATE = Count(), Count(0), Between("be greater than 0", is_open=True)
_LIMITS = CheckedBy(lambda name, value: expect.instance(name, value, Limits))
_CONTENT_TYPE = CheckedBy(lambda name, value: expect.instance(name, value, ContentType))
FLAG, ANY = CheckedBy(expect.flag), CheckedBy(lambda name, value: None)


@documented
@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """Limits and choices of a compaction."""

    executor: str = option(
        "executor",
        OneOfTexts(EXECUTORS),
        "auto",
        "`local`: in this process; `ray`: on a Ray cluster; `auto`: on Ray if the input exceeds one of the limits "
        "`local_rows_max` and `local_bytes_max`",
    )
    rows_per_round: int | None = option(
        "rows_per_round", COUNT, None, "delta rows that are folded in one round", says="as many as fit the object store"
    )
    memory_bytes: int | None = option(
        "memory_bytes",
        COUNT,
        None,
        "what this process may take in all, at least 256 MiB; it uses no cluster then",
        says="no bound",
    )
    memory_per_task_bytes: int | None = option(
        "memory_per_task_bytes",
        COUNT,
        None,
        "heap that one task may take",
        says="memory of the machine or cluster, divided by its CPUs",
    )
    object_store_bytes: int | None = option(
        "object_store_bytes", COUNT, None, "Ray's object store", says="the running cluster's, else 30 % of the memory"
    )
    target_file_bytes: int | None = option(
        "target_file_bytes",
        COUNT,
        None,
        "about the largest size of a compacted file",
        says="256 to 512 MiB, by the partition's size",
    )
    compression: str | None = option(
        "compression",
        CheckedBy(check_codec),
        None,
        "codec of written files: `zstd`, `snappy`, `gzip`, `lz4`, `brotli` or `none`; row groups with another one are "
        "encoded anew",
        says="that of the files whose rows are written, or of the Iceberg table; else `zstd`",
    )
    row_group_rows: int = option("row_group_rows", COUNT, 128 << 10, "rows of a Parquet row group", says="131,072")
    rewrite_dead_fraction: float | None = option(
        "rewrite_dead_fraction",
        Between("lie between 0 and 1", most=1.0),
        None,
        "a compacted file with a smaller share of dead rows stays, with a deletion vector",
        says="0.1 where the table's readers honour deletion vectors, else 0",
    )
    local_rows_max: int = option(
        "local_rows_max",
        COUNT_OR_ZERO,
        10_000_000,
        "most delta rows that `auto` compacts in this process",
        says="10,000,000",
    )
    local_bytes_max: int = option(
        "local_bytes_max",
        COUNT_OR_ZERO,
        2 << 30,
        "most bytes of deltas and compacted files that `auto` compacts in this process",
        says="2 GiB",
    )
    local_threads: int | None = option(
        "local_threads",
        COUNT,
        None,
        "tasks at a time in this process; 1 is a plain for-loop",
        says="one for each CPU; on S3 up to four, within a quarter of the memory",
    )
    ray_address: str | None = option(
        "ray_address",
        CheckedBy(expect.text_or_none),
        None,
        "a running cluster to join",
        says="`$RAY_ADDRESS`, else Ray is started here",
    )
    ray_cpus: int | None = option(
        "ray_cpus", COUNT, None, "wait until a growing Ray cluster has so many CPUs", says="1"
    )
    ray_wait_s: float = option(
        "ray_wait_s",
        Between("be 0 or more"),
        600.0,
        "wait for them so many seconds at most; then go on with the CPUs that are there",
        says="600",
    )
    partitions_at_once: int | None = option(
        "partitions_at_once",
        COUNT,
        None,
        "most partitions that are compacted at a time",
        says="as many as memory admits; on a local disk 4 small ones or one larger one",
    )
    concurrent_tasks: int | None = option(
        "concurrent_tasks", COUNT, None, "most tasks at a time", says="one for each CPU of machine or cluster"
    )
    read_mb_per_s: float | None = option(
        "read_mb_per_s", RATE, None, "most that all tasks together read, in 10^6 bytes a second", says="no limit"
    )
    write_mb_per_s: float | None = option(
        "write_mb_per_s", RATE, None, "most that all tasks together write, in 10^6 bytes a second", says="no limit"
    )
    requests_per_s: float | None = option(
        "requests_per_s",
        RATE,
        None,
        "most requests that all tasks together send to the store in a second; every process gets the same share",
        says="no limit",
    )
    task_retries: int = option(
        "task_retries", COUNT_OR_ZERO, 3, "how often a task is started again after its process or node died"
    )
    write_amplification_max: float = option(
        "write_amplification_max",
        Between("be 1 or more", least=1.0),
        AMPLIFICATION_MAX,
        "overlapping files are clustered anew up to so many times the rows that came, less those that former sessions "
        "wrote for it; the rest waits",
        says="4",
    )
    certify: bool = option(
        "certify",
        FLAG,
        False,
        "read what was written again, and commit only if its fingerprint is that of what was read; as much CPU "
        "again, up to fivefold with copied row groups",
        says="no",
    )
    limits: Limits = option(
        "limits",
        _LIMITS,
        LIMITS,
        "for tests and experts: thresholds that only large tables reach",
        says="those of the release",
    )

    def __repr__(self) -> str:
        """Only the settings that differ from their defaults."""
        chosen = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in chosen)})"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                field.metadata["option"].kind.check(field.name, value)


_OUTPUT_OPTIONS = (
    "rows_per_primary_key_index_file",
    "rows_per_compacted_file",
    "hash_bucket_count",
    "content_type",
    "target_file_bytes",
    "compression",
    "row_group_rows",
    "rows_per_round",
    "rewrite_dead_fraction",
    "purge",
)


@documented
@dataclass(frozen=True, slots=True)
class Options(Settings):
    """The settings of a compaction, and the other parameters of compact()."""

    rows_per_primary_key_index_file: int = option(
        "rows_per_primary_key_index_file",
        COUNT,
        38_000_000,
        "most entries of a file of the primary key index",
        says="38,000,000",
    )
    rows_per_compacted_file: int = option(
        "rows_per_compacted_file", COUNT, 4_000_000, "most rows of a compacted file", says="4,000,000"
    )
    hash_bucket_count: int | None = option(
        "hash_bucket_count",
        Count(most=HASH_BUCKETS_MAX),
        None,
        "hash buckets of the index",
        says="as many as it has, else by size and memory",
    )
    content_type: ContentType = option(
        "content_type",
        _CONTENT_TYPE,
        ContentType.PARQUET,
        "format of compacted files",
        says="Parquet",
    )
    purge: bool = option("purge", FLAG, False, "rewrite every file that has dead rows", says="no")
    cluster_by: str | None = option(
        "cluster_by",
        ANY,
        None,
        "columns by which rows are laid out in this run, up to four, each with a weight if wanted: `day*3,customer`; "
        "an empty text: none",
        says="those of the table",
    )

    @classmethod
    def of(cls, settings: Settings, **parameters: Any) -> Options:
        """The options with these settings and these other parameters."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(Settings)}, **parameters)

    @property
    def dead_fraction(self) -> float:
        """`rewrite_dead_fraction`, or 0 while it is None (planning/marking.py decides it)."""
        return self.rewrite_dead_fraction or 0.0

    @property
    def output_options(self) -> dict[str, str]:
        """Options that change the output; they are part of the session id.

        Limits and the memory of the machine are not part of it: the session records the decisions that they lead to.
        """
        options = {name: str(getattr(self, name)) for name in _OUTPUT_OPTIONS}
        options["rewrite_dead_fraction"] = str(self.dead_fraction)
        if self.cluster_by:  # without it, ids stay those of releases that had no clustering
            options["cluster_by"] = self.cluster_by
        if self.certify:  # outputs that no attempt read again have no certificate
            options["certify"] = str(self.certify)
        return options


DEFAULTS = Options()
"""compact(), the command line and the writers of files take their defaults from here."""

SETTINGS_OF_STREAMS = {
    "rows_per_round": "",
    "rewrite_dead_fraction": "delete-ratio-threshold",
    "target_file_bytes": "target-file-size-bytes",
    "write_amplification_max": "write-amplification-max",
}
"""Settings that Iceberg tables do not have, and the option of a mode that stands for each there."""
