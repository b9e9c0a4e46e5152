"""What the planner knows of a partition before anything runs: counts and sizes from the log and the index manifest.

orders, day=2024-01-01
deltas   12 files, 240,000 rows, 9 MB Parquet                 read and folded
base     3 files, 4,000,000 rows, 130 MB, 1 of them small     partly read and written anew
index    4 buckets, runs of 4,000,000 and 80,000 entries of 32 bytes
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """The primary key index of the base. `runs` are entries by run, the oldest first; `mask_bytes` of relocations.

    `mergeable`: whether a session may add a run to it instead of writing it anew.
    """

    hash_buckets: int
    runs: tuple[int, ...]
    entries: int
    mask_bytes: int = 0
    mergeable: bool = True


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """The input of one session.

    delta_file_rows     rows of each delta file, in fold order
    delta_bytes         at rest; `text_bytes` of them are CSV or JSON, which take longer to decode, and `kept_bytes` are
                        in files large enough to stay as they are where every row lives
    base_small_files    compacted files that are to be merged with others
    entry_bytes         of an index entry: 32 and the sort key
    read_bytes          of the largest row group, decoded
    index               None before the first compaction
    """

    table_id: str
    partition: dict[str, str | None]
    delta_file_rows: tuple[int, ...] = ()
    delta_bytes: int = 0
    text_bytes: int = 0
    kept_bytes: int = 0
    delete_rows: int = 0
    base_small_files: int = 0
    base_rows: int = 0
    base_bytes: int = 0
    entry_bytes: int = 32
    read_bytes: int = 0
    index: IndexStatistics | None = None

    @property
    def mode(self) -> str:
        """The mode of a job run on an Iceberg table; "" for a delta stream."""
        return ""

    @property
    def stream(self) -> str:
        """The name under which rates are learned. First compactions have another, as they say little of later ones."""
        return self.table_id if self.index else f"{self.table_id} (first)"

    @property
    def delta_files(self) -> int:
        return len(self.delta_file_rows)

    @property
    def delta_rows(self) -> int:
        return sum(self.delta_file_rows)

    @property
    def bytes(self) -> int:
        return self.delta_bytes + self.base_bytes

    @property
    def entries(self) -> int:
        """Entries of the index, if every delta row is new."""
        return self.delta_rows + (self.index.entries if self.index else 0)

    @property
    def read_through(self) -> int:
        """Files that every reader of the partition goes through, until somebody compacts it."""
        return self.delta_files + self.base_small_files


@dataclass(frozen=True, slots=True)
class BranchStatistics(PartitionStatistics):
    """The input of one session on a branch of an Iceberg table. `partition` names the branch.

    delta_file_rows     of each file that is opened, the rows whose keys are hashed: those of a delete file, those of a
                        data file that an equality delete may hit, else 0
    delta_bytes         of delete files
    base_…              of data files that are written anew; `read_bytes` of the largest row group, decoded
    delete_files        files of deletes, which every reader goes through
    key_rows            rows of the equality deletes
    """

    compacted_by: str = "rewrite"
    delete_files: int = 0
    key_rows: int = 0

    @property
    def mode(self) -> str:
        return self.compacted_by

    @property
    def stream(self) -> str:
        return f"{self.table_id} ({self.partition['branch']}, {self.compacted_by})"

    @property
    def read_through(self) -> int:
        return self.delete_files + self.base_small_files
