"""Every error that attention-bench raises on purpose.

    BenchError                 exit code 1   a case or the tool failed
    ├── UsageError             exit code 2   bad input, found before anything is measured
    │   ├── ProblemError                     a problem that cannot exist
    │   ├── MaskError                        a mask that cannot be read or built
    │   ├── SweepError                       a sweep file that cannot be read
    │   ├── TraceError                       a problem that is too large for its numbers to be read
    │   ├── UnknownNameError                 a name that no registry holds
    │   └── OutputError                      a folder or file that cannot be written or read
    ├── NothingSelectedError   exit code 5   the filters leave nothing to do or to compare
    ├── RegistryError          exit code 1   two members claim one name, or a member breaks its contract
    ├── Unsupported                          an implementation cannot run this problem (becomes a record)
    ├── Unavailable                          an implementation cannot run here at all (becomes a record)
    └── CaptureError                         a call cannot be captured into a CUDA graph (becomes a reason)

Messages read ``<subject> must <requirement>, got <value>`` and then name the next step.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BenchError(Exception):
    """Root of the tree; ``exit_code`` is what the command line ends with."""

    exit_code = 1


class UsageError(BenchError):
    """The user asked for something that cannot be; nothing was measured."""

    exit_code = 2


class ProblemError(UsageError):
    """A problem whose sizes, dtype, mask or scale do not fit together."""


class MaskError(UsageError):
    """A mask expression that cannot be read, or a mask whose parameters are impossible."""


class SweepError(UsageError):
    """A sweep file that cannot be read; the message names file and line."""


class TraceError(UsageError):
    """A problem that is too large for its numbers to be read, or a change that a worked example does not allow."""


class OutputError(UsageError):
    """A folder or file that cannot be written or read."""


class UnknownNameError(UsageError):
    """A name that a registry does not hold; the message offers the nearest ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """Describe ``name`` against the ``known`` members of ``kind`` (a singular noun)."""
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}."
        super().__init__(f"{kind} must be a known name, got {name!r}; {hint}")


class NothingSelectedError(BenchError):
    """The filters leave nothing to run, to show or to compare."""

    exit_code = 5


class RegistryError(BenchError):
    """Two members claim one name, or a member does not fulfil its family's contract."""


class Unsupported(BenchError):
    """Raised by an implementation that cannot compute a problem; the text is kept as the reason."""


class Unavailable(BenchError):
    """Raised by an implementation that cannot run on this machine; the text is kept as the reason."""


class CaptureError(BenchError):
    """A call that cannot be captured into a CUDA graph; the text is kept as the reason why there are no samples."""
