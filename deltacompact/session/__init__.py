"""One partition stream from plan to commit: the driver, its records, and its stages.

driver             a session reads like the design; start here
attempts           resume what an earlier attempt left, or begin anew
side_by_side       sessions of several partitions at a time
workbench          what the parts share: plan, executor, stores, records
stages             submit tasks, wait, emit events, measure             all_to_all    every task sends to every task
rounds             fold a share of the deltas into the index            last_round    the rest, decisions, pointers
compacted_files    which files stay, which are written                  output_tasks  one task for each of those
arranging          rows that are laid out by columns: routed, counted, given their places
records            put if absent; the loser adopts what is there
rehash             the index in another number of hash buckets
"""
