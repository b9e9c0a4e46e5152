"""Appending: rows or files become a delta at the end of a stream.

appender          rows of one stream, or of many; start here
stream_writer     data first, then the entry
stream_fit        whether files may be added to a stream
source_files      users' files, inspected and copied         written_files    not named by a log yet
changes           change events, and rows of many partitions
change_options    what the caller says of such rows
incoming          rows from any library that speaks Arrow
sources           files that a command line names
shape             whether files fit the stream              far          values that a wider type does not hold
blocking          which deltas block a stream               advice       errors that name delta and command
new_columns       announced or refused
known_partitions  types and texts of the partition columns that route rows
other_partitions  whether a new partition fits the others
positions         positions that a caller chooses
"""
