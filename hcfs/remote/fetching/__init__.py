"""How an object comes from its origin to the device."""
