"""Files that an origin has: many openers, streaming, uploads."""
