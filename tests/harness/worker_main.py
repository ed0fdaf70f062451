"""The process behind worker.Worker: reads {"code", "values"} lines, answers with JSON lines."""

import ast
import json
import os
import sys
import traceback

# Answers have the original stdout to themselves; what code prints goes to stderr.
_answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def _answer(**fields):
    _answers.write(json.dumps(fields, default=int) + "\n")


def _evaluate(code, names):
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<test>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<test>", "eval"), names) if last else None


def main():
    names = {}
    try:
        exec("import hixl", names)
    except BaseException:
        _answer(error=traceback.format_exc())
        return
    _answer(value=None)
    for line in sys.stdin:
        request = json.loads(line)
        names.update(request["values"])
        try:
            _answer(value=_evaluate(request["code"], names))
        except BaseException:
            _answer(error=traceback.format_exc())


main()
