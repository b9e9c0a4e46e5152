"""Every Python process of Spark imports this module. Spark's daemon imports here what its forked workers need.

Spark starts a worker for each plan, read and write of a Python data source. Without this, each would import for a
second.
"""

import gc
import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    import boto3  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401

    import deltacompact.spark.data_source
    import deltacompact.spark.history
    import deltacompact.spark.reading
    import deltacompact.spark.validate
    import deltacompact.spark.writing  # noqa: F401

    gc.freeze()  # a worker looks through all objects for garbage after each task, and what is imported stays
