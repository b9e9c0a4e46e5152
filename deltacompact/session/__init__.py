"""One partition stream from plan to commit: the driver, its records, and its stages.

driver             a session from plan to commit; start here
planned            the plan of a partition, by the terms of the table's sessions
attempts           resume an earlier attempt's session, or begin another
side_by_side       sessions of several partitions at a time
workbench          shared by all parts: plan, executor, stores, records
stages             wait for tasks, emit events, measure                 all_to_all    every task sends to every task
rounds             fold a share of the deltas into the index            last_round    the rest, decisions, pointers
compacted_files    which files stay, which are written                  output_tasks  the tasks that write files
arranging          lays rows out by columns, and gives each its place
cell_routing       rows go to the cells of a split tree                 written_ranges   how far each file reaches
arranged_outputs   the tasks that write files of such rows
records            put if absent; the loser adopts the stored record
rehash             changes the index's number of hash buckets
"""
