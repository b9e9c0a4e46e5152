"""The Spark data source "deltacompact": rows in through the catalog's log, live rows out.

    df.write.format("deltacompact").mode("append").option("catalog", uri).option("table", "orders").save()
    events.writeStream.format("deltacompact").option(…).option("checkpointLocation", "…").start()
    spark.read.format("deltacompact").option("catalog", uri).option("table", "orders").load()
    spark.readStream.format("deltacompact").option(…).option("changes", "all").load()           see changes.py

Tasks write data files, and the driver puts one log entry for each partition: a partition's rows appear together or not
at all. A failed job leaves its files to vacuum, because one of its partitions may be committed.

A streaming batch that Spark runs again has the token of its first run, so it counts once. The token is the option
`token`, or else the checkpoint's query id, with the batch id. The path of the checkpoint would not do: a new checkpoint
at an old path begins again with batch 0, which would count as known and be dropped. With the option, such a batch is
refused, once a later one is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from deltacompact.base.errors import InputError
from deltacompact.base.tokens import Token
from deltacompact.spark.options import STREAM_OPTIONS, WriteTarget, write_target
from deltacompact.spark.reading import LiveRows, table_schema
from deltacompact.spark.writing import WrittenFiles, commit_written, refuse_older_batch, write_rows


class DeltaCompactSource(DataSource):
    """The data source behind format("deltacompact"); options.py has its options."""

    @classmethod
    def name(cls) -> str:
        return "deltacompact"

    # The feed imports PyIceberg: a third of the CPU of a worker's start, and Spark starts one for each plan and commit.

    def schema(self) -> StructType:
        if "changes" in self.options:
            from deltacompact.spark.changes import feed_schema

            return feed_schema(self.options)
        return table_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        if "changes" in self.options:
            from deltacompact.spark.changes import Changes

            return Changes(self.options, schema)
        return LiveRows(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from deltacompact.spark.changes import ChangeStream

        return ChangeStream(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(write_target(self.options, schema.names, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        if overwrite:
            raise InputError("output mode 'complete' would replace the table: use 'append' or 'update'")
        for name in ("position", "force_position", "token_sequence"):
            if self.options.get(name) is not None:
                raise InputError(f"option {name!r} cannot serve every batch of a stream")
        target = write_target(self.options, schema.names, False, STREAM_OPTIONS)
        return MicroBatchWriter(target, self.options.get("checkpointLocation"))


class BatchWriter(DataSourceArrowWriter):
    """One DataFrame."""

    def __init__(self, target: WriteTarget) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        return write_rows(self._target, iterator)

    def commit(self, messages: list[Any]) -> None:
        commit_written(self._target, messages, self._target.token)


class MicroBatchWriter(DataSourceStreamArrowWriter):
    """Batch after batch, each exactly once."""

    def __init__(self, target: WriteTarget, checkpoint: str | None) -> None:
        self._target = target
        self._checkpoint = checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        return write_rows(self._target, iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        query_ids = [message.query_id for message in messages if message is not None and message.query_id]
        option = self._target.token.name if self._target.token else None
        producer = option or next(iter(query_ids), self._checkpoint)
        if producer is None:
            raise InputError("the stream has no identity: give option 'token' or 'checkpointLocation'")
        token = Token.of((producer, batchId))
        assert token is not None
        refuse_older_batch(self._target, messages, token)
        commit_written(self._target, messages, token)
