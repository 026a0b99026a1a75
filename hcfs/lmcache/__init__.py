"""LMCache's side of a mount: names of chunk files and the adapter's configuration. Imports nothing else of hcfs."""
