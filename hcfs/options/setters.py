"""Who may set something."""

from __future__ import annotations

from enum import Enum


class Setter(Enum):
    """The value is the sentence for whoever may not."""

    OWNER = "only root and the owner of the mount's root directory may set options"
    DAEMON = "what concerns an origin is set by root or the user whose daemon serves the mount alone"
    """Of what is read and written with the daemon's own rights."""
