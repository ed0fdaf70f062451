#!/usr/bin/env python3
"""Lists the rules of the API contract with their cases; exit code 1 when one has none.

    tests/tools/rule_cases.py [--all]

Reads tests/conformance/rules.py and the names of the test functions; nothing is run. A case whose rule
is not in the table is an error as well: otherwise a misspelt name would count for nothing.
"""

import ast
import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PREFIX = "test_rule_"


def load_rules(path=TESTS / "conformance/rules.py"):
    spec = importlib.util.spec_from_file_location("rules", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def functions_in(path):
    """Names of the test functions of one file."""
    tree = ast.parse(path.read_text(), str(path))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def cases_in(directory):
    """(rule, kind) of every case; kind is "ok" or "bad"."""
    for path in sorted(directory.glob("test_*.py")):
        for name in functions_in(path):
            if name.startswith(PREFIX):
                rule, _, kind = name.removeprefix(PREFIX).rpartition("_")
                yield rule, kind


@dataclass
class Coverage:
    missing: list = field(default_factory=list)  # "rule: kind"
    unknown: list = field(default_factory=list)  # cases of no rule
    stale: list = field(default_factory=list)  # places that are not there
    covered: dict = field(default_factory=dict)  # rule: number of cases

    @property
    def ok(self):
        return not (self.missing or self.unknown or self.stale)


def exists(place, tests):
    file, _, function = place.partition("::")
    path = tests / file
    return path.exists() and any(name.startswith(function) for name in functions_in(path))


def coverage(rules, tests=TESTS):
    result = Coverage()
    counts = {}
    for rule, kind in cases_in(tests / "conformance"):
        if rule not in rules.RULES or kind not in ("ok", "bad"):
            result.unknown.append(f"{rule}_{kind}")
        counts[rule, kind] = counts.get((rule, kind), 0) + 1
    for rule, (_, kinds) in rules.RULES.items():
        result.covered[rule] = sum(counts.get((rule, kind), 0) for kind in kinds)
        result.missing += [f"{rule}: {kind}" for kind in kinds if (rule, kind) not in counts]
    result.stale = [f"{rule}: {place}" for rule, place in rules.ELSEWHERE.items() if not exists(place, tests)]
    return result


def main(arguments):
    rules = load_rules()
    result = coverage(rules)
    if "--all" in arguments:
        for rule, (about, _) in rules.RULES.items():
            print(f"{rule:44} {result.covered[rule]:3} {about}")
        for rule, place in rules.ELSEWHERE.items():
            print(f"{rule:44}     {place}")
    for rule, why in rules.WITHOUT.items():
        print(f"no case, {why}: {rule}")
    for title, lines in (("no case", result.missing), ("no such rule", result.unknown),
                         ("no such test", result.stale)):
        for line in lines:
            print(f"{title}: {line}")
    print(f"{len(rules.RULES)} rules with cases of their own, {len(rules.ELSEWHERE)} elsewhere, "
          f"{len(rules.WITHOUT)} without")
    return 0 if result.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
