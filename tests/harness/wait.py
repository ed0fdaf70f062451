"""Waiting for something that another process does."""

import time

_PAUSE_S = 0.01


def until(condition, seconds=60):
    """Asks again and again; False at the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True


def eventually(condition, seconds=60):
    """The first true value of `condition`; fails the test at the deadline."""
    value = None

    def asked():
        nonlocal value
        value = condition()
        return value

    assert until(asked, seconds), "this never came true"
    return value
