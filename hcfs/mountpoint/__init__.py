"""A mount from outside of its daemon: the directory, who serves it, how it is asked, guarded and ended."""
