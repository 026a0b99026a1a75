"""Namespaces with an origin: what is listed there, how it comes here, and how what is written goes there."""
