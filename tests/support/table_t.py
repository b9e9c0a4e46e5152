"""What many tests do with the table `ns.t` of a lake, and ask of it."""

from __future__ import annotations

from pathlib import Path

from iceberg_lake import SETTINGS

import deltacompact

T = "ns.t"


def rows(*ids):
    return [{"id": number} for number in ids]


def ids(lake, branch="main"):
    """The ids as PyIceberg reads them, which refuses tables with equality deletes."""
    return sorted(row["id"] for row in lake.rows(T, branch))


def compact(lake, mode, **options):
    catalog = deltacompact.open_catalog(lake.catalog)
    return deltacompact.compact(T, delta_catalog_client=catalog, mode=mode, options=options, settings=SETTINGS)


def clean(lake):
    """Leave the current schema only, and no snapshot that names another one."""
    metadata = lake.catalog.load_table(T).metadata.model_dump(by_alias=True, mode="json")
    current = metadata["current-schema-id"]
    schemas = [schema for schema in metadata["schemas"] if schema["schema-id"] == current]
    snapshots = [snapshot | {"schema-id": current} for snapshot in metadata["snapshots"]]
    lake.edit_metadata(T, {"schemas": schemas, "snapshots": snapshots})


def files_below(lake):
    return {path for path in Path(lake.folder, "warehouse").rglob("*") if path.is_file()}


class Storage:
    """The files of a lake, and those that no snapshot names. Manifests are read once."""

    def __init__(self, lake):
        self.lake = lake
        self.manifests = {}

    def orphans(self):
        """Metadata files are none: they are the catalog's own."""
        table = self.lake.catalog.load_table(T)
        named = set()
        for snapshot in table.metadata.snapshots:
            named.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                if manifest.manifest_path not in self.manifests:
                    entries = manifest.fetch_manifest_entry(table.io, False)
                    self.manifests[manifest.manifest_path] = {entry.data_file.file_path for entry in entries}
                named |= {manifest.manifest_path, *self.manifests[manifest.manifest_path]}
        names = {path.rpartition("/")[2] for path in named}
        return [
            path
            for path in files_below(self.lake)
            if path.name not in names and not path.name.endswith(".metadata.json")
        ]
