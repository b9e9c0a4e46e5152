"""One function, one task: hash bucket, dedupe, pointers, materialize, rehash, and the shuffle between them."""
