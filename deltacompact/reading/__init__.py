"""The live rows of a stream without compacting it."""
