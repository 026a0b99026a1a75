"""Checks of a machine and of a mount, each of which is really made: what isn't looked at isn't spoken of."""
