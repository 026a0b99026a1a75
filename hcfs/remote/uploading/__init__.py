"""How what is written here goes to its origin."""
