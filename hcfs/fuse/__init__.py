"""The kernel's side of a mount, spoken without a library: the FUSE protocol, a connection, threads that serve it, and
the bridge to libfuse for what they don't serve. See docs/dataplane.md."""
