"""Sweep files that come with the package."""
