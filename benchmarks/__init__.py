"""Benchmarks; each prints the machine, the versions and a table."""
