"""Launch the sessions of a job run: in a process on this machine, or on a cluster of their own."""
