"""Imported before hcfs.store, here and in the processes that tests start: it then checks who holds its lock."""

from __future__ import annotations

import os

os.environ["HCFS_CHECK_LOCKS"] = "1"
