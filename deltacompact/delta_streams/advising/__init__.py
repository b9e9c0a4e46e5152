"""Advice before work on delta streams: how well some columns skip files, what clustering would bring, and cost.

    now          day: depth 3.1, a reader opens 1.2 % of the files      customer: depth 240, 100 %
    clustered    day 9 %, customer 11 %, both 1 %                       by a tree over sampled rows
    cost         3 deltas, and 12 compacted files that overlap          48 core-seconds of a compaction
    gain         0.9 core-seconds for each read                         worth it from 54 reads on

adviser          advice, reads and simulations; start here
examined_files   the files of the chosen partitions, and the ranges of their row groups
sampling         boxes of files and row groups, and sampled rows
costs            what a compaction by these columns writes, and how long it takes
"""
