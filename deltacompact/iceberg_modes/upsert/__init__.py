"""The mode `upsert`: the newest row of each key lives, and the others are marked as dead."""
