"""What belongs to other tables where orphans are searched: folders of tables of the catalog, and signs among the files.

searched /lake/t              another table has its data in /lake/t/old       refused: its files look like orphans
                              another one lies in /lake                       refused: it may write anywhere below
searched /lake, asked for     others in /lake/u, /lake/v                      these folders are left alone
                              another one lies in /lake itself                refused

    sub/00003-c9.metadata.json, sub/version-hint.text       an Iceberg table, however its folder is called
    sub/_delta_log/…, sub/.hoodie/…                         Delta Lake, Hudi
    sub/table.json and sub/partitions/…                     a delta table of ours
    sub/snapshot/… and sub/schema/schema-0                  Paimon

Data files of other tables look like orphans of the table around them, and may lie anywhere near a sign.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from deltacompact.base.errors import InputError, PassingError
from deltacompact.iceberg.table.locations import folder_identity
from deltacompact.iceberg.table.metadata import TableMetadata, folders_named
from deltacompact.iceberg.table.metadata_files import is_metadata_file
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable, Neighbour, UnlistedError
from deltacompact.iceberg_modes.maintain.options import UNLISTED_ALLOWED
from deltacompact.iceberg_modes.maintain.reach import is_inside
from deltacompact.storage.identity import file_name

VERSION_HINT = "version-hint.text"
DECLARED = "table.json"
"""The document of a delta table of ours, in its folder."""
_LOGS = re.compile(r"(?:.*/|)(_delta_log|\.hoodie)/.+", re.DOTALL)
_PAIRS = (
    (re.compile(rf"(.*/|){re.escape(DECLARED)}", re.DOTALL), "partitions/"),
    (re.compile(r"(.*/|)schema/schema-\d+", re.DOTALL), "snapshot/"),
)
"""A file, and a folder beside it: together they are a sign."""


def signs(paths: Iterable[str]) -> Iterator[str]:
    """Those of the paths that show that a table is there. Pure."""
    known = list(paths)
    halves: list[tuple[str, str]] = []
    for path in known:
        if is_metadata_file(path) or file_name(path) == VERSION_HINT or _LOGS.fullmatch(path):
            yield path
        for half, folder in _PAIRS:
            if match := half.fullmatch(path):
                halves.append((path, match[1] + folder))
    for path, folder in halves:
        if any(other.startswith(folder) for other in known):
            yield path


@dataclass(frozen=True, slots=True)
class Searched:
    """The folder that is searched. `is_wide`: it is more than one of the table's own folders."""

    location: str
    inside: str
    is_wide: bool

    @classmethod
    def of(cls, location: str, table: TableMetadata) -> Searched:
        own = {table.data_folder, table.metadata_folder, *folders_named(table.location, table.properties)}
        inside = folder_identity(location)
        return cls(location, inside, not is_inside(inside, map(folder_identity, own)))

    def left_alone(self, table: IcebergTable, unlisted_allowed: bool, say: Callable[[str], None]) -> dict[str, str]:
        """The folders of other tables in the searched one, by identity.

        Raises InputError where files of another table cannot be told from orphans, and a PassingError where the catalog
        does not answer now.
        """
        try:
            neighbours = list(table.neighbours(say))
        except UnlistedError as error:
            if unlisted_allowed and not self.is_wide:
                return {}
            unknown = f"{error}, and nobody knows whose files lie in {self.location}: nothing was deleted"
            if isinstance(error.__cause__, PassingError):
                raise type(error.__cause__)(
                    f"{table.metadata.table_id}: {unknown}; run it again. If it stays so: {self._remedy}"
                ) from error
            raise InputError(f"{table.metadata.table_id}: {unknown}; {self._remedy}") from error
        found: dict[str, str] = {}
        for neighbour in neighbours:
            found |= self._of(neighbour, table.metadata)
        return found

    @property
    def _remedy(self) -> str:
        if self.is_wide:
            return "search one of the table's own folders"
        return f"if no other table has files there, add {UNLISTED_ALLOWED}=true"

    def _of(self, other: Neighbour, ours: TableMetadata) -> dict[str, str]:
        if other.uuid == ours.uuid and other.is_spelling:
            raise InputError(
                f"{ours.table_id}: the catalog lists it as {other.table_id}: use that name. Nothing was deleted"
            )
        if other.uuid == ours.uuid:
            raise InputError(
                f"{ours.table_id}: it is also registered as {other.table_id}, whose files cannot be told from orphans: "
                "nothing was deleted. Drop one of the two names, without its files"
            )
        found = {}
        for folder in other.folders:
            name = folder_identity(folder)
            if self.is_wide and name.startswith(self.inside) and name != self.inside:
                found[name] = folder
            elif name.startswith(self.inside) or self.inside.startswith(name):
                raise InputError(
                    f"{ours.table_id}: files of table {other.table_id}, which has {folder}, cannot be told from "
                    f"orphans in {self.location}: nothing was deleted. Search a folder of {ours.table_id} alone "
                    "(--option location=…)"
                )
        return found
