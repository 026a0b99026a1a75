"""The filesystem: its core over the store and the cache, pyfuse3's operations over that, and the life of a mount."""
