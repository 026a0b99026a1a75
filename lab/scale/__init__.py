"""One store with ever more objects."""
