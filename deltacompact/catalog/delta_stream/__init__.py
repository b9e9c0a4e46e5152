"""The default catalog: each stream of deltas is a log of objects in a store. It needs no other service."""
