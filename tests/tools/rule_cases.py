#!/usr/bin/env python3
"""Lists the rules of the API contract with their cases; exit code 1 when one lacks a case.

    tests/tools/rule_cases.py [--all | --one-sided]

Reads tests/conformance/rules.py, the names of the test functions and the keys of tables RULE_CASES;
nothing is run. A rule has two sides, what it lets through and what it refuses; one with a single side
must say why. A case whose rule is not in the table is an error as well: otherwise a misspelt name would
count for nothing.
"""

import ast
import importlib.util
import re
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


def table_in(path):
    """Keys of the table RULE_CASES of one file."""
    for node in ast.parse(path.read_text(), str(path)).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "RULE_CASES":
            yield from (key.value for key in node.value.keys)


def cases_in(directory):
    """(rule, kind) of every case; kind is "ok" or "bad"."""
    for path in sorted(directory.glob("test_*.py")):
        named = [name.removeprefix(PREFIX) for name in functions_in(path) if name.startswith(PREFIX)]
        for name in [*named, *table_in(path)]:
            rule, _, kind = name.rpartition("_")
            yield rule, kind


@dataclass
class Coverage:
    missing: list = field(default_factory=list)  # "rule: kind"
    unknown: list = field(default_factory=list)  # cases of no rule
    stale: list = field(default_factory=list)  # places that are not there
    unexplained: list = field(default_factory=list)  # rules with one side and no reason, or two and one
    unmentioned: list = field(default_factory=list)  # parts of the contract without any rule
    covered: dict = field(default_factory=dict)  # rule: number of cases

    @property
    def ok(self):
        return not (self.missing or self.unknown or self.stale or self.unexplained or self.unmentioned)


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
    for rule, (_, kinds, *reason) in rules.RULES.items():
        if (len(kinds) == 1) != (len(reason) == 1 and bool(reason[0])):
            result.unexplained.append(rule)
        result.covered[rule] = sum(counts.get((rule, kind), 0) for kind in kinds)
        result.missing += [f"{rule}: {kind}" for kind in kinds if (rule, kind) not in counts]
    result.stale = [f"{rule}: {place}" for rule, place in rules.ELSEWHERE.items() if not exists(place, tests)]
    result.unmentioned = [part for part in rules.PARTS if not mentioned(part, rules)]
    return result


def mentioned(part, rules):
    """Whether some rule is of this part: "1_7" by its number, "B7" by a word of its name."""
    if part[0].isdigit():
        return any(re.match(rf"{part}(?!\d)", rule) for rule in (*rules.RULES, *rules.ELSEWHERE, *rules.WITHOUT))
    words = [word.lower() for rule in (*rules.RULES, *rules.ELSEWHERE, *rules.WITHOUT) for word in re.split("[ _]", rule)]
    return part.lower() in words


def main(arguments):
    rules = load_rules()
    result = coverage(rules)
    if "--all" in arguments:
        for rule, (about, *_) in rules.RULES.items():
            print(f"{rule:44} {result.covered[rule]:3} {about}")
        for rule, place in rules.ELSEWHERE.items():
            print(f"{rule:44}     {place}")
    one_sided = {rule: (kinds[0], why[0]) for rule, (_, kinds, *why) in rules.RULES.items() if why}
    if "--one-sided" in arguments:
        for rule, (kind, why) in one_sided.items():
            print(f"{rule:44} {kind:3} only: {why}")
    for rule, why in rules.WITHOUT.items():
        print(f"no case, {why}: {rule}")
    for title, lines in (("no case", result.missing), ("no such rule", result.unknown),
                         ("no such test", result.stale), ("one side, and no reason", result.unexplained),
                         ("part without a rule", result.unmentioned)):
        for line in lines:
            print(f"{title}: {line}")
    print(f"{len(rules.RULES)} rules with cases of their own, {len(one_sided)} of them with one side by nature; "
          f"{len(rules.ELSEWHERE)} elsewhere, {len(rules.WITHOUT)} without")
    return 0 if result.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
