"""Keeps a table's metadata small, and its folder free of files that nothing reaches.

options            ages, counts and sizes, under Iceberg's own names
maintain           the driver: expire, then rewrite manifests, then remove orphans
retention          which snapshots, branches and tags go: a pure function of the metadata
expire             commits that, then deletes what only the expired snapshots reached
manifest_plan      which manifests are rewritten together: a pure function of a manifest list
encoded_entries    manifest entries as the bytes that they are stored as, so that no field is lost
rewrite_manifests  few manifests for many, built anew on each head
reach              the files that snapshots reach, each manifest read once
sessions           closes the journals of killed sessions, so that nobody commits from them any more
orphans            files below the table's location that nothing reaches: listed first, then compared
other_tables       tables of the catalog whose folders overlap with the searched one; signs of others among the files
"""
