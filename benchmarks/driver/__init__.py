"""The real driver on a simulated cluster: what a session of a pebibyte costs it, with no data and no machines.

table.py        a table of 10,000 files that are only named in its log
tasks.py        what each task would return, with counts that add up; its seconds, from the rates of planning/work.py
cluster.py      nodes, slots and a virtual clock; stragglers, and nodes that are lost
executor.py     an Executor on it: planner, session, records, log and commit are the real ones
measuring.py    a session in a process of its own: the driver's CPU seconds, memory, objects, requests, bytes
report.py       tables, and the efficiency as an SVG
"""
