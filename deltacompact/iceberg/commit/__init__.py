"""One snapshot onto a branch, under live writers: what it changes, its files, its attempts; and how others expire."""
