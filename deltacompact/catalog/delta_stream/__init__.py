"""The default catalog: each stream of deltas is a log of objects in a store. It needs no other service.

catalog           what users call: create, append, read, publish; start here
tables            what is declared of tables                        table_documents  table.json, keys.json, source.json
listing           where all streams of a table stood                paths            where every object is

log               the versions of one stream: read, commit, switch  log_entries      entries in JSON
log_objects       the objects of a log                              effects          entries in words
state             what the entries up to one of them mean           checkpoints      many entries as one object
heads             the end of a log in one object: pure              stored_head      that object on its store
stream_writer     data first, then the entry                        certain_put      put if absent, until it is certain
tokens            a batch is committed once                         positions        positions that a caller chooses

incoming          rows from any library that speaks Arrow           sources          files that a command line names
shape             which files fit the stream                        advice           errors that name delta and command

partition         the engine's three ports for one partition        snapshots        what a compaction folds
scan              which partitions, versions, columns and rows are read
destinations      tables that are written by compacting another one
versions          list them, go back, take out one delta            file_lists       what other engines read

vacuum            delete what nothing reaches; it works in this order:
vacuum_listing    list the objects                                  vacuum_mark      what need not be read again
vacuum_chain      the versions that seals lead to                   vacuum_reach     what they reach
vacuum_held       what published Iceberg snapshots refer to         vacuum_fences    sessions that may still publish
vacuum_logs       logs of attempts that lost, old checkpoints
contradictions    signs that somebody else removed or wrote entries
"""
