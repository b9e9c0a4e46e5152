"""Tables that other tools are known to fail at, or to take long for.

sparse    46 M rows, 585 equality-delete files with 17 keys each: apache/iceberg #13674, out of memory on 2 x 256 GB
small     130,387 rows in 500 files, 500 equality-delete files: apache/iceberg-rust #2950, 295 s
fifth     20 M rows, a fifth of them deleted by key

Ids are scattered over the files, so that no bounds help: every delete may apply to every data file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

ROWS_MIN = 1_000
FILES_MIN = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """A table: `rows` in `data_files`, and `deleted_keys` in `delete_files`, all newer than the data."""

    name: str
    rows: int
    data_files: int
    delete_files: int
    deleted_keys: int

    def scaled(self, scale: float) -> Shape:
        """A table of so many times the rows and files."""
        if scale == 1.0:
            return self
        rows = max(ROWS_MIN, round(self.rows * scale))
        return replace(
            self,
            name=f"{self.name}-{scale:g}",
            rows=rows,
            data_files=max(FILES_MIN, round(self.data_files * scale)),
            delete_files=max(FILES_MIN, round(self.delete_files * scale)),
            deleted_keys=min(rows // 2, max(FILES_MIN, round(self.deleted_keys * scale))),
        )


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("sparse", 46_000_000, 92, 585, 585 * 17),
        Shape("small", 130_387, 500, 500, 13_000),
        Shape("fifth", 20_000_000, 40, 200, 4_000_000),
    )
}
