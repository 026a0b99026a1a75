"""What is measured: a module for each command of `tools/lab bench`."""
