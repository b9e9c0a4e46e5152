"""The primary-key index of a table: where each key lies, kept beside the table, so that old data files stay closed.

a.parquet    id 7, id 3        run 0    digest(3) | file 0, row 1      digest(7) | file 0, row 0
b.parquet    id 7              run 1    digest(7) | file 0, row 0      numbers count the files of each run

An entry says what a row of an immutable data file holds, and nothing else: the digest of its key, its place, its sort
key, whether it deletes its key. So an index can be *stale*, never wrong. The current table says whether a row lives,
and whether its file is still there. New files are read and added; entries of removed files are ignored. Deletes,
rollbacks, branches and other writers change nothing in an index.

terms       by what rows are indexed: columns with their types; another schema, another index
document    one generation of an index: its runs, and the data files of each
storing     reads the newest generation, puts the next one, deletes what no generation names
blocks      entries of a run, by digests or by a range of digests: damage is found before it is used
entering    tasks: data files become entries, entries become a run in the order of digests
lookup      task: the rows of some keys
indexes     what convert and upsert see

If an index fails, the user gets one line, and the data files are read instead.
"""
