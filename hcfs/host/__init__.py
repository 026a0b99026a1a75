"""What the host tells of processes, and what signals tell this one."""
