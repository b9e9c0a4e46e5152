"""The runner in a launched process: runs one group of sessions of one job run, through deltacompact.compact()."""
