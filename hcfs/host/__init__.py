"""What the host's kernel says about processes."""
