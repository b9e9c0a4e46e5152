"""The mode `upsert`: of the rows of one key only the newest lives, the others are marked as dead."""
