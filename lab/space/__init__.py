"""Whether space is told truthfully, comes back, and stays in long runs."""
