"""Long searches for broken promises, each a command under tools/ and a small budget in the default suite."""
