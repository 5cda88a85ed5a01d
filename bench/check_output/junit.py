"""JUnit's XML: one test case per subject, so that a CI system lists what is worse like tests that fail.

The elements are those that all readers share: ``testsuites``, ``testsuite``, ``testcase``, ``failure``, ``skipped``.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from bench.check_output import headline
from bench.outcome import Outcome
from bench.regression import Check

NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, however they are written."""


def junit(check: Check, strict: bool) -> str:
    """The whole document; doubts are skipped cases, or failures if none are wanted."""
    subjects: dict[str, list[Outcome]] = {}
    for one in check.outcomes:
        subjects.setdefault(one.subject, []).append(one)
    suite = ElementTree.Element("testsuite", name="attention-bench check")
    failures = skipped = 0
    for subject in sorted(subjects):
        found = subjects[subject]
        case = ElementTree.SubElement(suite, "testcase", classname="attention-bench.check", name=_legal(subject))
        grave = [one for one in found if one.severity == "fail" or (strict and one.severity == "doubt")]
        doubts = [one for one in found if one.severity == "doubt"]
        if grave:
            failures += 1
            _say(case, "failure", grave)
        elif doubts:
            skipped += 1
            _say(case, "skipped", doubts)
    if not check.compared and not failures:
        failures += 1
        case = ElementTree.SubElement(suite, "testcase", classname="attention-bench.check", name="anything is compared")
        ElementTree.SubElement(case, "failure", message=headline(check), type="NOTHING COMPARED")
    counts = {"tests": str(len(suite)), "failures": str(failures), "skipped": str(skipped), "errors": "0"}
    for name, count in counts.items():
        suite.set(name, count)
    root = ElementTree.Element("testsuites", counts)
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _say(case: ElementTree.Element, kind: str, outcomes: list[Outcome]) -> None:
    texts = [_legal(f"{one.metric or 'subject'} {one.name}: {one.text}") for one in outcomes]
    element = ElementTree.SubElement(case, kind, message=texts[0], type=outcomes[0].name)
    element.text = "\n".join(texts)


def _legal(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)
