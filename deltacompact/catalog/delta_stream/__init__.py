"""The default catalog: each stream of deltas is a log of objects in a store. It needs no other service.

catalog           what users call: create, append, read, publish; start here

log               one stream: read entries, commit, switch              log_entries  their JSON form
state             what the entries up to one of them mean               heads        the hint that saves reading them
stream_writer     data first, then the entry                            certain_put  put if absent, until it is certain
table_documents   table.json, keys.json, source.json                    paths        where every object is
listing           where all streams of a table stood                    tokens       a batch is committed once
incoming          rows from any library that speaks Arrow               sources      files that a command line names
shape             which files fit the stream                            advice       errors that name delta and command

partition         the engine's three ports for one partition            snapshots    what a compaction folds
scan              which partitions, versions, columns and rows are read
destinations      tables that are written by compacting another one
versions          list them, go back, take out one delta                file_lists   what other engines read
vacuum            delete what nothing reaches                           vacuum_mark  what the next one need not read
contradictions    signs that somebody else removed or wrote entries
"""
