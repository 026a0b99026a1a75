"""Namespaces whose files are stored here and go to an origin: what their calls mean."""
