"""What the tests and the laboratory share: the command line as a user calls it, images, loop devices and mounts."""
