"""Attention implementations, one module each, found by :mod:`bench.registry`; none imports another."""
