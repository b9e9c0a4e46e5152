"""Objects by path, wherever they are: a local disk, S3, memory. The only door to boto3."""
