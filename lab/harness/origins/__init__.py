"""Servers that speak S3 and Google Cloud Storage, and clients of files that come from them."""
