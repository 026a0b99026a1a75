"""What can be said of a mount, of a namespace and of an origin: tables with a row each, for every room."""
