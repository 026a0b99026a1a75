"""The command line: one module a command, each parses, calls a lower room and prints."""
