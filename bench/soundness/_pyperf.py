"""pyperf is needed for two experiments alone, and so is no dependency of the rest."""

from __future__ import annotations

from importlib.util import find_spec

from bench.errors import Unavailable


def need_pyperf() -> None:
    """Say what to do if pyperf is missing.

    Raises:
        Unavailable: if it is not installed.
    """
    if find_spec("pyperf") is None:
        raise Unavailable(
            "pyperf must be installed to be compared with, got no such package. "
            "Run `pip install 'attention-bench[soundness]'`."
        )
