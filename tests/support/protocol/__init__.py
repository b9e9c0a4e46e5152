"""One table under concurrency: processes change it, and its log must agree with what they did.

world      the requests to the table, their acknowledgements, and checks that log, reads and rows agree
tasks      append, compact, rehash, restate, vacuum, read: each is repeated until it succeeds
schedule   steps several processes in a seeded order, with faults and jumps in time
meetings   one process runs from start to end between two operations of another process
"""
