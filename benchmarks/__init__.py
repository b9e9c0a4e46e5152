"""deltacompact beside its peers, on the same files, one after another: see README.md.

configurations.py   what is compacted: narrow or wide rows, all of a table or one percent of it
data.py             the files, made once, and what their compaction must come to (checksum.py)
tpch.py             the same for TPC-H's lineitem and orders; refresh.py: which orders its streams touch
competitors/        the floor, deltacompact, Spark, Polars, DuckDB, delta-rs: each prepares, works, shows its files
spark.py            the session of every contender on Spark
child.py            one competitor in a process of its own
meter.py            CPU and memory of that process and its children, read from outside
runner.py           children one after another, interleaved: measurements
summary.py          medians and ratios to the floor
grids.py            tables of cells, on the screen and in Markdown
report.py plots.py bars.py  report.md, report.json, pictures, and the table on the screen
memory.py           a table that is larger than the object store given to it
matrix/             the paper's figures: job runs over input size, hash buckets and vCPUs, here or on EC2
throughput.py       how long a session takes on a cluster that nobody has here, from measured rates
prediction.py       what the measured rates come to there, beside the paper's figures
console.py          what every command needs: a folder, somebody to tell, options that are lists of names
s3/                 the same work on S3: a proxy with latency and faults, requests, dollars
iceberg/            Iceberg tables with deletes, beside Spark and iceberg-zamboni
sla.py              expected against actual durations of sessions
cli.py              python -m benchmarks run | tpch | lhbench | memory | sla | s3 | iceberg | local | ec2 | job | …
"""
