"""One table under concurrency: what processes do to it, and what its log says that they did.

world      what was asked of the table, what was acknowledged, and whether log, reads and rows agree
tasks      append, compact, rehash, restate, vacuum, read: each until it is done
schedule   steps several processes in a seeded order, with faults and jumps in time
meetings   two processes, of which one runs from end to end between two operations of the other
"""
