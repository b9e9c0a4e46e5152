"""What the planner knows of a branch of an Iceberg table before anything runs; of a partition: planning/statistics.py.

orders, main      4 delete files with 17 deleted keys      12 data files with 4,000,000 rows are written anew
"""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.planning.statistics import PartitionStatistics


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
        return self._named(f" ({self.partition['branch']}, {self.compacted_by})")

    @property
    def read_through(self) -> int:
        return self.delete_files + self.base_small_files
