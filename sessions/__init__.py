"""The control plane: from an instruction document to a table that is compacted within its SLA.

    deltacompact-sessions submit nightly.json --queue …         a document on a queue
    dispatcher    accepts it once, as a *job run*, and claims it by a lease
    planner       one *session* for each partition: workers, hash buckets, expected seconds, and why
    launcher      a process or a cluster for each group of sessions
    page, events, metrics                                       show what happens, while it happens

`sessions` imports `deltacompact`, never the other way round.
"""
