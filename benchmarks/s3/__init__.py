"""deltacompact on S3"""
