"""Counts and sizes from rows and bytes, before any task runs. Pure.

index_sizes    hash buckets, rehashing, rounds, runs
task_counts    the tasks of each stage                 driver_time    what they cost the driver
layout_sizes   rows that are routed and sorted         file_sizes     compacted files
task_memory    what a task, a process and a node take
"""
