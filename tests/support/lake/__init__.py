"""A table, a model of it, and actors who change both alike, for the feature machine and for plain tests.

    model         the events of each partition, folded by the oracle: what must be read
    limits        small limits, so that tiny tables have what large tables have: runs, copied rows, stubs
    world         the store, the clock, the catalog and the model
    writer        appends files of any format, with tokens
    compactor     compacts and rehashes
    destination   knows what the destination table may hold
    vacuum        deletes what is old
    historian     retracts, restates, rolls back
    publisher     lists and exports for other programs
    advisor       damages heads, checkpoints, listings and marks, which readers can do without
    reader        compares everything with the model
    lake          all actors together
    draws         what hypothesis chooses from

An actor changes the catalog and the model alike. Only readers compare the two.
"""
