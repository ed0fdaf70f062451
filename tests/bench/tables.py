"""Runs the rows of the tables and writes them as Markdown; see run_tables.sh."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.installation import find_installation  # noqa: E402

import control  # noqa: E402
import lab as lab_module  # noqa: E402
import rows  # noqa: E402


def measure(lab, row):
    """The row's result; a row that cannot run or fails says why in its place."""
    lab.commands.clear()
    try:
        measured = row(lab)
    except lab_module.Unavailable as reason:
        measured = lab_module.Measured(row.__name__, "", f"not here: {reason}", None, [])
    except RuntimeError as problem:
        text = " ".join(str(problem).split())
        measured = lab_module.Measured(row.__name__, "", f"failed: {text}", False, [])
    measured.commands = list(dict.fromkeys(lab.commands))
    return measured


def write(out, title, head, results):
    out.write(f"### {title}\n\n{head}\n")
    for result in results:
        verdict = {True: "yes", False: "**no**", None: "-"}[result.reached]
        out.write(f"| {result.work} | {result.wanted} | {result.value} | {verdict} |\n")
    out.write("\nCommands, in the order of the rows:\n\n")
    for result in results:
        for command in result.commands:
            out.write(f"    {command}\n")
    out.write("\n")


def parse():
    parser = argparse.ArgumentParser(description="Measures the tables of docs/performance.md")
    parser.add_argument("--quick", action="store_true", help="shorter rounds")
    parser.add_argument("--only", default="", metavar="PATTERN", help="rows whose name contains it")
    parser.add_argument("--output", metavar="FILE", help="instead of standard output")
    return parser.parse_args()


def main():
    arguments = parse()
    # Asked to end, it still takes its daemons and namespaces along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="hixld-tables-") as scratch:
        lab = lab_module.Lab(find_installation(scratch), arguments.quick)
        try:
            tables = []
            for group in (rows.NUMBERS, rows.OTHERS, control.ROWS):
                results = []
                for row in group:
                    if arguments.only not in row.__name__:
                        continue
                    print(f"{row.__name__} ...", file=sys.stderr, flush=True)
                    results.append(measure(lab, row))
                    print(f"  {results[-1].value}", file=sys.stderr, flush=True)
                tables.append(results)
        finally:
            lab.close()
    out = open(arguments.output, "w", encoding="utf-8") if arguments.output else sys.stdout
    out.write(f"{lab_module.machine()}. Two values are read / write.\n\n")
    write(out, "Numbers to reach", "| work | at least | measured | reached |\n| --- | --- | --- | --- |",
          tables[0])
    write(out, "Speeds to compare with others (write / read; the last column: p99 under 10 x p50)",
          "| work | UCX 1.13 TCP put, tuned | measured | tail |\n| --- | --- | --- | --- |", tables[1])
    write(out, "Control calls", "| work | at most | measured | reached |\n| --- | --- | --- | --- |", tables[2])
    if arguments.output:
        out.close()


if __name__ == "__main__":
    main()
