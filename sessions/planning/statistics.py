"""What the planner knows about a branch of an Iceberg table before anything runs.

What it knows about a partition of a delta stream is in deltacompact/planning/statistics.py.

orders, main      4 delete files with 17 deleted keys      12 data files with 4,000,000 rows are written anew
"""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.planning.statistics import PartitionStatistics


@dataclass(frozen=True, slots=True)
class BranchStatistics(PartitionStatistics):
    """The input of one session on a branch of an Iceberg table. `partition` names the branch.

    delta_file_rows     for each file that is opened, how many rows have their keys hashed: all rows of a delete file,
                        and of a data file that an equality delete may hit; else 0
    delta_bytes         bytes of delete files
    base_…              data files that are written anew; `read_bytes`: their largest row group, decoded
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
        return self._named(f" ({self.partition['branch']}, {self.compacted_by})")

    @property
    def read_through(self) -> int:
        return self.delete_files + self.base_small_files
