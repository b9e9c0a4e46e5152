"""Maintains tables: checks, drops and vacuums tables of delta streams; health and readability of all tables.

check           verifies rows, files and index against each other; rehashes
drop            deletes a table
vacuum          deletes objects that no retained version and no published snapshot needs
health          how much readers fold and skip                    iceberg_health         the same for Iceberg branches
readable_by     which engines read an Iceberg branch              stream_readable_by     the same for delta streams
stored_ranges   whether files keep to their ranges                iceberg_check          the same for Iceberg branches
"""
