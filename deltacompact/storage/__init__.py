"""Objects by path, on a local disk, on S3 or in memory. The only door to boto3."""
