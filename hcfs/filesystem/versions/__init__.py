"""Versions: what writers make of a name before anybody else sees it."""
