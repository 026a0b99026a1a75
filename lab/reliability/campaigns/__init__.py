"""Long searches for broken promises, each a command of tools/lab and a small budget in the default suite."""
