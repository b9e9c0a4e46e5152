"""The records of job runs, sessions and dispatchers, in a folder or below an S3 prefix."""
