"""One function for each task: hash bucket, dedupe, assign pointers, materialize, rehash; and the shuffle."""
