"""An explanation as text and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

from bench.explanation._cell import Sentence, Support
from bench.units import significant

if TYPE_CHECKING:
    from bench.explanation import Explanation

WIDTH = 110
"""Columns of text."""


def text_lines(found: Explanation) -> Iterator[str]:
    """For a terminal: sentences by topic, under each what supports it."""
    yield f"{found.implementation} on {found.problem}, {found.device}, run {found.run_id}"
    for topic, sentences in _by_topic(found.sentences):
        yield f"\n{topic}"
        for one in sentences:
            yield from wrap(one.text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
            yield from wrap(
                _support(one), WIDTH, initial_indent="      <- ", subsequent_indent="         ", break_on_hyphens=False
            )
    if found.refusals:
        yield "\nnot said"
    for refusal in found.refusals:
        yield from wrap(f"{refusal.topic}: {refusal.reason}", WIDTH, initial_indent="  ", subsequent_indent="    ")


def markdown_lines(found: Explanation) -> Iterator[str]:
    """For a page: a heading, one list item per sentence with its support nested."""
    yield f"### `{found.implementation}` on `{found.problem}`\n"
    yield f"Run {found.run_id} on {found.device}."
    for topic, sentences in _by_topic(found.sentences):
        yield f"\n**{topic}**\n"
        for one in sentences:
            yield f"- {_plain(one.text)}"
            yield from (f"  - {source.source}, `{source.field}`: {_plain(_value(source))}" for source in one.support)
    if found.refusals:
        yield "\n**not said**\n"
    yield from (f"- {refusal.topic}: {_plain(refusal.reason)}" for refusal in found.refusals)


def _by_topic(sentences: Iterable[Sentence]) -> Iterator[tuple[str, list[Sentence]]]:
    """Sentences under their topics, in order."""
    topics: dict[str, list[Sentence]] = {}
    for one in sentences:
        topics.setdefault(one.topic, []).append(one)
    yield from topics.items()


def _support(one: Sentence) -> str:
    """``record: flop = 4294967296; ceilings: ...``."""
    return "; ".join(f"{source.source}: {source.field} = {_value(source)}" for source in one.support)


def _value(source: Support) -> str:
    """Its value, for people."""
    return significant(source.value, 4) if isinstance(source.value, float) else str(source.value)


def _plain(text: str) -> str:
    """One line that Markdown does not read as its own."""
    return re.sub(r"([*_`|<>\[\]])", r"\\\1", " ".join(text.split()))
