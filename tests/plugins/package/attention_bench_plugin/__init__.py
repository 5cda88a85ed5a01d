"""A plug-in for attention-bench."""
