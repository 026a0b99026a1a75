"""Loading weights timed: hcfs's reader beside other loaders, and a first token with and without pipelining.

Each measurement runs in a process of its own (hcfs.weights.bench.child): peak memory is a process's, and no loader
finds what another one has warmed up. Needs torch; the other loaders are measured where they are installed.
"""
