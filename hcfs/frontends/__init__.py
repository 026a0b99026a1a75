"""Who speaks with the kernel for the filesystem: pyfuse3's handlers, and the data plane's."""
