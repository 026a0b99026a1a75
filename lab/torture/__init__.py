"""Many processes, kills at random, remounts, and a known state outside the mount."""
