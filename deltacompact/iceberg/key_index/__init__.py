"""The primary-key index of a table: where each key lies, kept beside the table, so that old data files stay closed.

a.parquet    id 7, id 3        run 0    digest(3) | file 0, row 1      digest(7) | file 0, row 0
b.parquet    id 7              run 1    digest(7) | file 0, row 0      numbers count the files of each run

An entry says what a row of an immutable data file holds, and nothing else: the digest of its key, its place, its sort
key, whether it deletes its key. So an index can be *stale*, never wrong. Whether a row lives, and whether its file is
still in the table, is asked of the current table. Files that came are read and added, files that went are not asked.
Deletes, rollbacks, branches and other writers change nothing that is in it.

terms       by what rows are indexed: columns with their types; another schema, another index
document    one generation of an index: its runs, and the data files of each
storing     the newest generation, the next one, and what nobody names any more
blocks      entries of a run, by digests or by a range of digests: damage is found before it is used
entering    tasks: data files become entries, entries become a run in the order of digests
merging     which runs are merged into the next: pure
lookup      task: the rows of some keys
indexes     what convert and upsert see

Any failure of an index is told in one line, and the data files are read instead.
"""
