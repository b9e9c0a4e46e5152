"""Lost partition values: Java replaces the values of a partition field by null once its column was dropped.

    m1.avro    written by Spark while the table had `day`        data a    day 1      delete p    day 1
    m2.avro    m1's data files, merged once `day` was dropped    data a    day null   delete p    day 1

Java merges all manifests of an old spec at the first append under the next spec.

Iceberg's Java binds each spec to today's schema. A field whose column is gone has type `unknown` there, and becomes
null when manifests are merged. Manifests of data and of deletes are merged at different times, so such a null may stand
for any value. A value other than null is still the writer's.

Position deletes name their data files: we match them with every partition that has the same known values, and the paths
decide. An equality delete with a lost value could reach the rows of any partition: we refuse such a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.content_files import Content, ManifestEntry, PartitionTuple
from deltacompact.iceberg.table.metadata import TableMetadata


def position_scopes(metadata: TableMetadata) -> Callable[[ManifestEntry], tuple[int, PartitionTuple]]:
    """A function that gives the scope of a file for position deletes: spec id and partition, null for lost values."""
    lost = _lost_fields(metadata)

    def scope(entry: ManifestEntry) -> tuple[int, PartitionTuple]:
        file = entry.file
        if file.spec_id not in lost:
            return file.spec_id, file.partition
        return file.spec_id, tuple(
            None if place in lost[file.spec_id] else value for place, value in enumerate(file.partition)
        )

    return scope


def refuse_lost_partitions(metadata: TableMetadata, live: Iterable[ManifestEntry]) -> None:
    """Raises InputError if an equality delete and a data file have a spec whose lost values might separate them."""
    lost = _lost_fields(metadata)
    if not lost:
        return
    of_lost = [entry for entry in live if entry.file.spec_id in lost]
    by_key = {entry.file.spec_id: entry for entry in of_lost if entry.file.is_equality_delete}
    for entry in of_lost:
        delete = by_key.get(entry.file.spec_id)
        if delete is None or entry.file.content is Content.POSITION_DELETES:
            continue
        spec = metadata.specs[entry.file.spec_id]
        name = next((name for place, name in lost[spec.spec_id].items() if entry.file.partition[place] is None), None)
        if name is not None:
            raise InputError(
                f"{metadata.table_id!r} has deletes by key in partition spec {spec.spec_id} ({delete.file.path}), and "
                f"the value of its field {name!r} is lost for {entry.file.path}: today's schema does not have the "
                "column, so nobody can tell which rows they delete; copy to a new table what the table had in a "
                "snapshot before the column was dropped, and what came later"
            )


def _lost_fields(metadata: TableMetadata) -> Mapping[int, Mapping[int, str]]:
    """By spec id, the fields whose values get lost: place and name. Specs without such a field are left out."""
    columns = {number for number, column in metadata.columns.items() if not column.is_dropped}
    found = {
        spec_id: {
            place: part.name
            for place, part in enumerate(spec.fields)
            if part.transform != "void" and part.source_id not in columns
        }
        for spec_id, spec in metadata.specs.items()
    }
    return {spec_id: places for spec_id, places in found.items() if places}
