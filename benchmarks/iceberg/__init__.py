"""Iceberg tables with many deletes, and what it takes to be rid of them: see README.md.

shapes.py    tables that other tools are known to fail at, or to take long for
tables.py    their files, made once, in a catalog on sqlite
cleaners.py  deltacompact's convert and rewrite, and Spark's rewrite_data_files
runs.py      one cleaner in a process of its own, measured from outside
cli.py       python -m benchmarks iceberg
"""
