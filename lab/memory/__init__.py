"""The daemon's memory under load, and over many opens."""
