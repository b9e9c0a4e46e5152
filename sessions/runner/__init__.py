"""What runs inside a launched process: one group of sessions of one job run, through deltacompact.compact()."""
