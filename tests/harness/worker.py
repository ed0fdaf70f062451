"""Client processes that a test steers: real processes, with the installed Python package."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, Queue

_MAIN = Path(__file__).with_name("worker_main.py")
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


class WorkerError(AssertionError):
    """The code that the worker ran raised; the message is its traceback."""


class Worker:
    """Runs Python code in a process of its own, one piece after the other.

    `run` returns the value of the code's last expression. Names stay defined between calls, and
    `hixl` is imported.
    """

    def __init__(self, daemon, python=PYTHON, environment=None):
        environment = {**daemon.environment(), **(environment or {})}
        self.process = subprocess.Popen(daemon.wrap([python, "-u", _MAIN]), env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answers = Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.result(timeout=60)  # the import succeeded

    def _read(self):
        for line in self.process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def start(self, code, **values):
        """Begins to run `code`, with `values` defined; its value comes from result()."""
        self.process.stdin.write(json.dumps({"code": code, "values": values}) + "\n")
        self.process.stdin.flush()

    def result(self, timeout=60):
        try:
            answer = self._answers.get(timeout=timeout)
        except Empty:
            raise TimeoutError(f"the worker gave no answer within {timeout} s") from None
        if answer is None:
            raise WorkerError(f"the worker ended with {self.process.wait()}")
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer["value"]

    def run(self, code, timeout=60, **values):
        self.start(code, **values)
        return self.result(timeout)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        """Ends the process; a worker that does not end by itself is killed."""
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
