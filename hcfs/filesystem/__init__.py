"""What system calls mean: the filesystem over store and cache. It knows no front end, no daemon and no origin."""
