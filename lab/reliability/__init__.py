"""Stores on devices that crash, fail and lie, without a mount where that is enough."""
