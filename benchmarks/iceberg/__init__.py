"""deltacompact on Iceberg tables beside its peers: see README.md.

shapes.py        tables with equality deletes of several shapes, made once
cdc.py           lineitem under change events, compacted again and again
writing.py       a writer of such tables
contenders.py    deltacompact (rewrite, convert), Spark's rewrite_data_files, iceberg-zamboni
measuring.py     each contender on a table of its own that shares the files, in a process of its own
report.py        medians by shape and contender
layouts.py       seconds and shares of files opened: split trees, Spark's orders, DuckDB's ORDER BY
cli.py           python -m benchmarks iceberg
"""
