"""Where a call can go to: one object for each kind of place, and which it is."""
