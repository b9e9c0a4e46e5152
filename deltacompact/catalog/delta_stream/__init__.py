"""The default catalog: streams of deltas as a log of objects in a store, and nothing else."""
