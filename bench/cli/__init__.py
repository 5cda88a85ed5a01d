"""The command line: verbs and their options, each handing over to one function elsewhere.

Data go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 a case or the tool failed, 2 usage
or bad input, 3 worse than before, 4 in doubt where no doubt is wanted, 5 nothing selected or nothing
comparable, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import CycloptsError

from bench.cli import (
    checking,
    comparing,
    explaining,
    exporting,
    kernels,
    measuring,
    profiling,
    proving,
    reading,
    tracing,
    trending,
)
from bench.cli._shared import app, say
from bench.errors import BenchError, UsageError

__all__ = [
    "app",
    "checking",
    "comparing",
    "explaining",
    "exporting",
    "kernels",
    "main",
    "measuring",
    "profiling",
    "proving",
    "reading",
    "tracing",
    "trending",
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    try:
        code = app(
            [a for a in arguments if a != "--debug"],
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as error:
        say(f"error: {error}")
        code = UsageError.exit_code
    except BenchError as error:
        if debug:
            raise
        say(f"error: {error}")
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # `| head` closed stdout: not our failure
        sys.stdout = None
        code = 0
    sys.exit(code if isinstance(code, int) else 0)
