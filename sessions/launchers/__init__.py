"""Where the sessions of a job run run: in a process here, or on a cluster of their own."""
