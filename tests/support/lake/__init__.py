"""A table beside a model of it, and everybody who acts on both: for the feature machine and for plain tests.

    model         the events of each partition, folded by the oracle: what must be read
    limits        limits of large tables, made small: runs, copied rows and stubs occur in tiny tables
    world         the store, the clock, the catalog and the model
    writer        appends files of any format, with tokens
    compactor     compacts and rehashes
    destination   knows what a destination may hold
    vacuum        deletes what is old
    historian     retracts, restates, rolls back
    publisher     lists and exports for other programs
    advisor       spoils heads, checkpoints, listings and marks, which only save time
    reader        compares everything with the model
    lake          all of them together
    draws         what hypothesis chooses from

An actor does one thing to the catalog and the same thing to the model. Only readers compare the two.
"""
