"""LMCache's own clients, driven in processes of their own."""
