"""Benchmarks of hcfs beside what it competes with."""
