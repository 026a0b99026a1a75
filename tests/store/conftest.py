"""Hypothesis without deadlines: on a busy machine any example may take long."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
