"""Eviction policies on traces of LLM serving."""
