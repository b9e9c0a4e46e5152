"""Everything that a caller may choose about a compaction. Each default and each check is defined once, here.

    Settings     how a compaction runs: compact(…, settings=Settings(executor="ray"))
    Options      the settings, and the other parameters of compact(): rows_per_compacted_file, purge, …

None means: measure it on the machine or cluster, or decide it by the size of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.limits import LIMITS, Limits
from deltacompact.base.model import ContentType

EXECUTORS = ("auto", "ray", "local")
COUNT_MAX = 2**53
"""No table has so many rows or bytes. A float cannot hold every larger whole number."""
HASH_BUCKETS_MAX = 1_000_000
_RATES = ("read_mb_per_s", "write_mb_per_s", "requests_per_s")
_TEXTS = ("executor", "compression", "ray_address")
_NUMBERS = ("rewrite_dead_fraction", "ray_wait_s", "write_amplification_max")
_NO_COUNTS = (*_TEXTS, *_NUMBERS, *_RATES, "limits", "content_type", "purge", "certify", "cluster_by")
_MAY_BE_ZERO = ("local_rows_max", "local_bytes_max", "task_retries")


def check_codec(argument: str, name: str | None) -> None:
    """Refuse a codec that pyarrow cannot write, before a compaction reads anything."""
    if expect.text_or_none(argument, name) in (None, "none"):
        return
    import pyarrow as pa

    try:
        known = pa.Codec.is_available(name)
    except ValueError:
        known = False
    if not known:
        raise InputError(f"{argument} {name!r} is not a codec of pyarrow (zstd, snappy, gzip, lz4, brotli or none)")


def at_least(name: str, value: int, minimum: int, maximum: int | None = None) -> int:
    """The value. Raises InputError, with the name, if it is not a whole number in the range."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise InputError(f"{name} is {value!r}, it must be a whole number of at least {minimum}")
    if maximum is not None and value > maximum:
        raise InputError(f"{name} is {value!r}, it must be {maximum} at most")
    return value


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and choices of a compaction.

    executor                "local" runs in this process, "ray" on a cluster, "auto" takes Ray for large input
    rows_per_round          delta rows folded in one round (default: as many as fit the object store)
    memory_bytes            what this process may take in all; it stays in this process then (default: no bound)
    memory_per_task_bytes   heap that one task may take (default: memory of the machine or cluster, divided by its CPUs)
    object_store_bytes      Ray's object store (default: the running cluster's, else 30 % of the memory)
    target_file_bytes       about the largest size of a compacted file (default: 256 to 512 MiB, by the partition)
    compression             codec of written files (default: the codec of the files that are rewritten, else zstd)
    rewrite_dead_fraction   keep a compacted file, with a deletion vector, if a smaller share of its rows is dead
                            (default: 0.1 where the table's readers honour deletion vectors, else 0)
    row_group_rows          rows of a Parquet row group
    local_rows_max          "auto" stays in this process up to this many delta rows, and
    local_bytes_max         this many bytes of delta and compacted files
    local_threads           tasks at a time in this process (default: one for each CPU; 1 is a plain for-loop)
    ray_address             a running cluster to join (default: $RAY_ADDRESS, else start one here)
    ray_cpus                wait until a growing cluster has this many CPUs (default: 1),
    ray_wait_s              at most this many seconds; then go on with the CPUs that are there
    partitions_at_once      most partitions that are compacted at a time (default: as many as memory admits, by their
                            plans; one by one in this process on local disks)
    concurrent_tasks        most tasks at a time (default: one for each CPU of machine or cluster)
    read_mb_per_s           most that all tasks together read, in 10^6 bytes a second (default: no limit),
    write_mb_per_s          most that they write,
    requests_per_s          and most requests to the store; every process gets the same share
    task_retries            how often a task that died is started again
    write_amplification_max of compacted files that overlap in the columns to cluster by, those wait for a later session
                            that would make one write more than so many times its new rows (default: no bound; files
                            wait while they are larger than what is newer)
    certify                 read what is written again, and commit only where its fingerprint is that of what was read
    limits                  for tests and experts: see deltacompact.base.limits
    """

    executor: str = "auto"
    rows_per_round: int | None = None
    memory_bytes: int | None = None
    memory_per_task_bytes: int | None = None
    object_store_bytes: int | None = None
    target_file_bytes: int | None = None
    compression: str | None = None
    row_group_rows: int = 128 << 10
    rewrite_dead_fraction: float | None = None
    local_rows_max: int = 10_000_000
    local_bytes_max: int = 2 << 30
    local_threads: int | None = None
    ray_address: str | None = None
    ray_cpus: int | None = None
    ray_wait_s: float = 600.0
    partitions_at_once: int | None = None
    concurrent_tasks: int | None = None
    read_mb_per_s: float | None = None
    write_mb_per_s: float | None = None
    requests_per_s: float | None = None
    task_retries: int = 3
    write_amplification_max: float | None = None
    certify: bool = False
    limits: Limits = LIMITS

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise InputError(f"executor {self.executor!r} is not one of {', '.join(EXECUTORS)}")
        expect.text_or_none("ray_address", self.ray_address)
        check_codec("compression", self.compression)
        dead = self.rewrite_dead_fraction
        if dead is not None and not 0.0 <= expect.number("rewrite_dead_fraction", dead) <= 1.0:
            raise InputError(f"rewrite_dead_fraction is {dead!r}, it must lie between 0 and 1")
        if not expect.number("ray_wait_s", self.ray_wait_s) >= 0:
            raise InputError(f"ray_wait_s is {self.ray_wait_s!r}, it must be 0 or more")
        for name in _RATES:
            if (rate := getattr(self, name)) is not None and not expect.number(name, rate) > 0:
                raise InputError(f"{name} is {rate!r}, it must be greater than 0")
        expect.flag("certify", self.certify)
        bound = self.write_amplification_max
        if bound is not None and not expect.number("write_amplification_max", bound) >= 1:
            raise InputError(f"write_amplification_max is {bound!r}, it must be 1 or more")
        expect.instance("limits", self.limits, Limits)
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if name not in _NO_COUNTS and value is not None:
                maximum = HASH_BUCKETS_MAX if name == "hash_bucket_count" else COUNT_MAX
                at_least(name, value, 0 if name in _MAY_BE_ZERO else 1, maximum)
            elif value is None and field.default is not None:
                raise InputError(f"{name} is None, it must be a number")


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


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """The settings of a compaction, and the other parameters of compact().

    rows_per_primary_key_index_file    most entries of an index file
    rows_per_compacted_file            most rows of a compacted file
    hash_bucket_count                  hash buckets of the index (default: as many as it has, or by size and memory)
    content_type                       format of compacted files: compacted_file_content_type of compact()
    purge                              rewrite every file with dead rows in it
    cluster_by                         columns by which rows are laid out, "day*3,customer"; "": none (default: the
                                       table's)
    """

    rows_per_primary_key_index_file: int = 38_000_000
    rows_per_compacted_file: int = 4_000_000
    hash_bucket_count: int | None = None
    content_type: ContentType = ContentType.PARQUET
    purge: bool = False
    cluster_by: str | None = None

    def __post_init__(self) -> None:
        expect.instance("content_type", self.content_type, ContentType)
        expect.flag("purge", self.purge)
        Settings.__post_init__(self)

    @classmethod
    def of(cls, settings: Settings, **parameters: Any) -> Options:
        """These settings, with the other parameters."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(Settings)}, **parameters)

    @property
    def dead_fraction(self) -> float:
        """`rewrite_dead_fraction`, or 0 as long as nobody has decided it (see planning/marking.py)."""
        return self.rewrite_dead_fraction or 0.0

    @property
    def output_options(self) -> dict[str, str]:
        """Options that change the output; they are part of the session id.

        Limits and the memory of the machine are not part of it: the session records the decisions that they lead to.
        """
        options = {name: str(getattr(self, name)) for name in _OUTPUT_OPTIONS}
        options["rewrite_dead_fraction"] = str(self.dead_fraction)
        if self.cluster_by:  # else the id is as it was before
            options["cluster_by"] = self.cluster_by
        if self.certify:  # outputs of an attempt that read nothing again have no certificate
            options["certify"] = str(self.certify)
        return options


DEFAULTS = Options()
"""compact(), the command line and the writers of files take their defaults from here."""
