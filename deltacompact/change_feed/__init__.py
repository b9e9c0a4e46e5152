"""The change feed: which rows came, went and changed between two versions or snapshots of a table.

feed            the net change of some candidates, row by row; start here
candidates      rows of one file that may have come or gone        row_digests    rows that are equal
cancelling      rows on both sides are no change                   moved_rows     nor are rows that only moved
pairing         updates, by key                                    batch_keys     of rows that a mirror gets
columns         the columns of a feed
iceberg         the candidates of an Iceberg branch                delta_streams  those of a stream
changes         of a table of either kind                          request        what users ask for
difference      changes and files, counted                         steps          a commit and its candidates
bookmark        how far a consumer is
branch_bookmarks  of Iceberg tables: tags                          stream_bookmarks  numbered objects
"""
