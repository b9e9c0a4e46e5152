"""Tables and plans as documents and in words: what `show` and `plan` print, and `str(table)`.

catalog_report   the tables of a catalog                        iceberg_catalog  those of an Iceberg catalog
table_report     the streams of a table                         iceberg_table    what a branch is made of
version_report   the versions of streams                        declared         what a table declares
plan_report      what a compaction would do                     decisions        what becomes of each file, and why
health           file sizes, dead rows, backlog                 advice           what clustering would bring
sizes            what lies in partitions, and waits             size_cells       the same as cells of a line
scale            how much of many partitions is said            counting         tells how far a report is
history          versions and snapshots, one line each          shown            what str() and notebooks print
words            words and shapes that several share            plots            pictures of all these
"""
