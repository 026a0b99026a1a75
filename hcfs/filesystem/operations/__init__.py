"""What the calls by name and inode mean, one subject a file."""
