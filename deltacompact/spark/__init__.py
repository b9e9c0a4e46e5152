"""Spark in and out of the catalog: session, data source, demo producer, validator. Nothing else imports pyspark.

session.py        one builder for every session
data_source.py    spark.read / df.write / writeStream .format("deltacompact"): options.py, writing.py, reading.py
changes.py        the change feed, in batches and as a stream
producer.py       a table of deltas for the demo
validate.py       the independent judge: history.py, frames.py, comparable.py, digests.py, fold.py, index_frame.py
iceberg.py        the same of Iceberg tables, with what jars.py loads from Maven
"""

from deltacompact.base.missing import importing
from deltacompact.base.without_pandas import allow_pandas

allow_pandas()
with importing("pyspark"):
    import pyspark  # noqa: F401
