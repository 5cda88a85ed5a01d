"""What `attention-bench check` tolerates here: ``[tool.attention-bench.check]`` of a ``pyproject.toml``.

[tool.attention-bench.check]
sweep = "gate"                            # what a baseline measures
threads = 1                               # of a CPU operator; without it: as many as the environment gives
controls = ["sdpa_math", "naive"]         # times are ratios to the first one; its own, to the second
margin = 0.03                             # changes of time within it do not matter, on any machine
missing = "fail"                          # a cell that the candidate lacks: fail, doubt or note
new = "note"                              # one that the baseline lacks
exact_claims = ["score_memory"]           # claims whose verdicts no clock has a part in

[[tool.attention-bench.check.override]]
metric = "peak_bytes"                     # a metric, or time, status, ran; without it: all
cell = "^naive .*T4096"                   # regular expression over "implementation problem"; without it: all
tolerance = 0.02                          # relative; of a time, its margin where that is larger than the machine's
floor = 4096                              # absolute, in the metric's unit
ignore = false                            # true: whatever it says is waived
reason = "the mask is built in float32 until torch takes a boolean one"
expires = 2027-03-01                      # from then on the override is an error
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, FiniteFloat, ValidationError, field_validator, model_validator

from bench.errors import OutputError, UsageError
from bench.model import Model

DEFAULT = Path("pyproject.toml")
"""Where the table stands unless a caller says otherwise; alone this file may be missing."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
Severity = Literal["fail", "doubt", "note"]
"""``fail`` ends with exit code 3; ``doubt`` with 4 where doubts are not tolerated; ``note`` is only said."""


class Override(Model):
    """One exception from the rules, with its reason and its end."""

    metric: str | None = None
    """Name of a metric, ``time``, ``status`` or ``ran``; null: all."""
    cell: str | None = None
    """Regular expression that is searched for in ``implementation problem``; null: all."""
    tolerance: FiniteFloat | None = Field(default=None, ge=0)
    """Relative change for the worse that is accepted."""
    floor: FiniteFloat | None = Field(default=None, ge=0)
    """Absolute change for the worse that is accepted, in the metric's unit."""
    ignore: bool = False
    """Whether every finding is waived; it is still listed."""
    reason: str = Field(min_length=8)
    """Why."""
    expires: date
    """First day on which the override is an error."""

    @field_validator("cell")
    @classmethod
    def _is_pattern(cls, cell: str | None) -> str | None:
        try:
            re.compile(cell or "")
        except re.error as error:
            raise ValueError(f"cell must be a regular expression ({error})") from error
        return cell

    def applies(self, metric: str, cell: str) -> bool:
        """Whether it speaks of this metric of this cell."""
        return self.metric in (None, metric) and (self.cell is None or re.search(self.cell, cell) is not None)

    @model_validator(mode="after")
    def _does_something(self) -> Override:
        if self.tolerance is None and self.floor is None and not self.ignore:
            raise ValueError("an override must have a tolerance, a floor, or ignore = true")
        if self.metric == "time" and self.floor is not None:
            raise ValueError("a time has no floor, since it is a ratio; give it a tolerance")
        return self

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"{self.metric or 'every metric'} of {self.cell or 'every cell'} ({self.reason})"


class Policy(Model):
    """The whole table."""

    sweep: str = "gate"
    """What a baseline measures."""
    threads: int | None = Field(default=None, ge=1)
    """Threads of a CPU operator; null: as many as the environment gives."""
    controls: tuple[str, ...] = Field(default=("sdpa_math", "naive"), min_length=1)
    """Implementations whose time others are divided by: the first that is not the one in question."""
    margin: FiniteFloat = Field(default=0.03, gt=0)
    """Changes of time within it do not matter; a baseline of a noisy machine may ask for more."""
    missing: Severity = "doubt"
    """A cell, claim or kernel that the baseline has and the candidate lacks."""
    new: Severity = "note"
    """One that the candidate has and the baseline lacks."""
    exact_claims: tuple[str, ...] = ()
    """Claims that are judged where no times are."""
    override: tuple[Override, ...] = ()
    """Exceptions; of several that apply, a later one replaces what an earlier one says."""

    @property
    def variables(self) -> dict[str, str | None]:
        """Environment variables of what measures."""
        return {} if self.threads is None else dict.fromkeys(THREAD_VARIABLES, str(self.threads))

    def overriding(self, metric: str, cell: str) -> Override | None:
        """The exceptions for one metric of one cell as one, or None."""
        found = [one for one in self.override if one.applies(metric, cell)]
        if not found:
            return None
        said = {name: value for one in found for name, value in one if value is not None and value is not False}
        return found[-1].model_copy(update=said)

    def idle(self, pairs: Iterable[tuple[str, str]]) -> list[Override]:
        """Exceptions that none of these (metric, cell) pairs needs: perhaps misspelled."""
        known = list(pairs)
        return [one for one in self.override if not any(one.applies(*pair) for pair in known)]


def read_policy(path: Path, today: date | None = None) -> Policy:
    """The policy of a TOML file; one without the table, and no ``pyproject.toml`` at all, give the default.

    Raises:
        UsageError: if the table cannot be read or an override has expired.
        OutputError: if the file cannot be read.
    """
    if path == DEFAULT and not path.exists():
        return Policy()
    try:
        data: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OutputError(
            f"policy must be a readable file, got {str(path)!r} ({error.strerror}). Check --policy."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"policy must be valid TOML, got {str(path)!r}: {error}. Mend that line.") from error
    tool = data.get("tool", {}).get("attention-bench", {})
    if not isinstance(tool, dict) or tool.keys() - {"check"}:
        names = ", ".join(sorted(tool.keys() - {"check"})) if isinstance(tool, dict) else repr(tool)
        raise UsageError(
            f"[tool.attention-bench] must hold the table check and nothing else, got {names} in {path}. Mend it."
        )
    try:
        policy = Policy.model_validate(tool.get("check", {}))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"[tool.attention-bench.check] must be a valid policy, got {where or 'the table'}: {first['msg']}. "
            f"Mend it in {path}."
        ) from error
    for one in policy.override:
        if one.expires <= (today or date.today()):
            raise UsageError(
                f"override must not have expired, got {one.title} of {one.expires} in {path}. "
                "Remove it, or say anew until when and why it is needed."
            )
    return policy
