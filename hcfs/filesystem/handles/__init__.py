"""Open files and directories: each handle serves its own calls."""
