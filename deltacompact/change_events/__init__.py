"""Change events: rows that say what happened to them become upserts and deletes, in the order that the fold needs.

events         upserts and deletes with their places; start here
operations     which rows are deletes: the values of an operation column    values     the values by default
last_events    what of a batch counts: at most a delete and an upsert a key
partitions     rows by their partition columns                              routes     which partition a value means
envelopes      Debezium, Maxwell: rows inside of messages                   formats    which fields they have
source_tables  all messages of a batch are of one table of the source
messages       lines of JSON with messages                      unavailable   values that the source did not say
sort_texts     sort keys that events have as texts

Nothing here knows a catalog: delta_streams/appending/changes.py writes and commits.
"""
