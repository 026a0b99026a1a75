"""What `tools/demo` shows."""
