"""What a matrix runs, and what came of each point.

    rows 1 M, 4 M  x  hash buckets 8, 32  x  vCPUs 1, 2  x  payload 0  =  8 points, each `repeats` times
    point 4000000-32-2-0  ->  job-4000000-32-2-0-r0.json: 5.1 s, 1.9 M rows out, or the reason why not

Points of the same vCPUs come together: they share a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from itertools import product

from benchmarks.configurations import ENTRY_BYTES
from deltacompact.planning.sizing import index_sizes
from deltacompact.storage.objects import ObjectStore

_PREFIX = "runs/"


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One place in the matrix. `hash_buckets` 0: as many as figure 3-1 recommends."""

    vcpus: int
    payload_bytes: int
    rows: int
    hash_buckets: int

    @property
    def name(self) -> str:
        return f"{self.rows}-{self.hash_buckets}-{self.vcpus}-{self.payload_bytes}"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Every combination, each of them `repeats` times."""

    rows: tuple[int, ...]
    hash_buckets: tuple[int, ...]
    vcpus: tuple[int, ...]
    payload_bytes: tuple[int, ...] = (0,)
    repeats: int = 1

    def points(self, vcpus: int) -> list[Point]:
        """The points of one cluster, ordered by table, so that each table is made once."""
        return sorted(Point(vcpus, *rest) for rest in product(self.payload_bytes, self.rows, self.hash_buckets))

    def attempts(self, vcpus: int) -> Iterator[tuple[Point, int]]:
        """The points of one cluster with the number of the repeat: all points once, then all again."""
        for repeat in range(self.repeats):
            for point in self.points(vcpus):
                yield point, repeat


@dataclass(frozen=True, slots=True)
class JobRun:
    """One job run: seconds of its compaction, bytes, and why it failed (None: it did not, and its result was right).

    `decompressed_bytes` are those of the input's rows in memory, `input_bytes` at rest. `hash_buckets` is what was
    asked for, `hash_buckets_used` what was taken. `spilled_bytes` are None where Ray did not tell.
    """

    vcpus: int
    payload_bytes: int
    rows: int
    hash_buckets: int
    repeat: int
    error: str | None = None
    seconds: float = 0.0
    hash_buckets_used: int = 0
    rows_out: int = 0
    input_bytes: int = 0
    decompressed_bytes: int = 0
    output_bytes: int = 0
    rounds: int = 0
    stages_s: dict[str, float] = field(default_factory=dict)
    scheduling_share: float = 0.0
    planned_peak_bytes: int = 0
    measured_peak_bytes: int = 0
    spilled_bytes: int | None = None

    @classmethod
    def failed(cls, point: Point, repeat: int, error: str) -> JobRun:
        return cls(point.vcpus, point.payload_bytes, point.rows, point.hash_buckets, repeat, error)

    @property
    def point(self) -> Point:
        return Point(self.vcpus, self.payload_bytes, self.rows, self.hash_buckets)

    @property
    def rows_per_s_core(self) -> float:
        return self.rows / self.seconds / self.vcpus

    @property
    def tib_per_h(self) -> float:
        """Decompressed TiB of the input for each hour of the compaction."""
        return self.decompressed_bytes / 2**40 / (self.seconds / 3600)


def path_of(point: Point, repeat: int) -> str:
    """Where the outcome of one attempt is kept."""
    return f"{_PREFIX}job-{point.name}-r{repeat}.json"


def keep(store: ObjectStore, run: JobRun) -> None:
    """Put an outcome; a later attempt at the same repeat takes its place."""
    store.put(path_of(run.point, run.repeat), json.dumps(asdict(run), indent=1).encode())


def kept(store: ObjectStore) -> list[JobRun]:
    """Every outcome that is there. Raises ValueError for a file that is none."""
    return [read(store, stat.path) for stat in store.list(_PREFIX)]


def read(store: ObjectStore, path: str) -> JobRun:
    """One outcome. Raises ValueError for a file that is none."""
    document = json.loads(store.get(path))
    if unknown := set(document) ^ {field.name for field in fields(JobRun)}:
        raise ValueError(f"{path} is of another version of the benchmarks ({', '.join(sorted(unknown))})")
    return JobRun(**document)


def recommended_buckets(rows: Iterable[int], memory_per_cpu_bytes: int) -> list[int]:
    """Figure 3-1: hash buckets for so many input rows."""
    return [index_sizes.hash_bucket_count(count, ENTRY_BYTES, memory_per_cpu_bytes) for count in rows]
