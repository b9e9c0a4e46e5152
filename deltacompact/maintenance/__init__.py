"""Looking after tables of delta streams.

check      verifies rows, files and index against each other; rehashes
drop       deletes a table
vacuum     deletes what nothing reaches, and nothing that a published snapshot refers to
"""
