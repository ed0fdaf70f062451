#!/usr/bin/env python3
"""Adds up JUnit XML reports and prints `N passed, N failed, N skipped`.

A report that is missing or unreadable counts as one failure: a test binary that crashed before it
could write one must not vanish from the sum. Exit code 1 when something failed or nothing ran.
"""

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass


@dataclass
class Totals:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other):
        return Totals(self.passed + other.passed, self.failed + other.failed,
                      self.skipped + other.skipped)

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    @property
    def ok(self):
        return self.failed == 0 and self.passed > 0


def totals_of(path):
    """Counts the test cases of one report."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError) as problem:
        print(f"no usable report at {path}: {problem}", file=sys.stderr)
        return Totals(failed=1)
    totals = Totals()
    for case in cases:
        children = {child.tag for child in case}
        if children & {"failure", "error"}:
            totals.failed += 1
            print(f"failed: {case.get('classname') or path}: {case.get('name')}", file=sys.stderr)
        elif "skipped" in children:
            totals.skipped += 1
        else:
            totals.passed += 1
    return totals


def main(paths):
    totals = sum((totals_of(path) for path in paths), Totals())
    print(totals)
    return 0 if totals.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
