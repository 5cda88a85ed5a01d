"""attention-bench: how fast, how large and how wrong is each attention implementation on this machine?"""

__version__ = "0.1.0"
