"""Questions to a catalog and first states of tables that several test files share."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pyarrow as pa
from simulation import Simulation

from deltacompact import DeltaStreamCatalog
from deltacompact.base.data_file import DataFile
from deltacompact.base.model import Partition
from deltacompact.maintenance.check import check


def problems(catalog: DeltaStreamCatalog, table_id: str = "t") -> list[str]:
    """The problems that `check` finds in a table."""
    return [problem for report in check(catalog, table_id) for problem in report.problems]


def compacted_files(catalog: DeltaStreamCatalog) -> tuple[DataFile, ...]:
    """The compacted files of table t, which has no partitions."""
    compacted = catalog.state("t", Partition()).compacted
    assert compacted is not None
    return compacted.files


def one_row_simulated() -> tuple[Simulation, DeltaStreamCatalog]:
    """A simulation with a table t that has one row, k = 1, and the catalog of an unscheduled process."""
    simulation = Simulation()
    catalog = simulation.catalog()
    catalog.create_table("t", (), ["k"])
    catalog.append("t", pa.table({"k": [1]}))
    return simulation, catalog


def lake_of_release_0_1(folder: Path) -> Path:
    """The lake that release 0.1 wrote, unpacked; see test_golden_lake.py."""
    with tarfile.open(Path(__file__).parents[1] / "golden" / "lake_0_1_0.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "lake"
