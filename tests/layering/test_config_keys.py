"""Errors and pages name configuration keys; every key that is named exists."""

import re
from pathlib import Path

import pytest

from test_tree import ROOT, tracked

_SECTIONS = ("socket", "node", "security", "workers", "pools", "devices", "tcp", "local", "rdma",
             "rings", "limits", "log", "telemetry")
_KEY = re.compile(rf"(?<![\w./-])(?:{'|'.join(_SECTIONS)})(?:\.[a-z][a-z0-9_]*)+(?![\w(])")
# In code a key stands in a string; in pages it stands in backquotes.
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_CODE_SPAN = re.compile(r"`[^`\n]+`")


def known_keys():
    """Keys and sections of hixld.yaml, by indentation; it is generated from the schema."""
    keys, path = set(), []
    for line in (ROOT / "config/hixld.yaml").read_text().splitlines():
        match = re.match(r"^( *)([a-z_0-9]+):", line)
        if match:
            path[len(match.group(1)) // 2:] = [match.group(2)]
            keys.add(".".join(path))
    return keys


KNOWN = known_keys()


def named_keys(path, spans):
    text = "\n".join(spans.findall((ROOT / path).read_text(errors="replace")))
    # "limits.*" and file names such as "log.h" name no key.
    return {key for key in _KEY.findall(text) if not key.endswith((".h", ".cc", ".proto", ".py"))}


def sources():
    return [path for path in tracked("*.cc", "*.h")
            if path.parts[0] in ("daemon", "transports", "proto", "client")]


def pages():
    return tracked("README.md", "docs/*.md", "deploy/**/*.md")


def test_the_keys_are_read_from_the_default_file():
    assert {"tcp.lanes", "pools.host.max_bytes", "tcp", "version"} <= KNOWN


@pytest.mark.parametrize("path,spans", [(str(p), _STRING) for p in sources()] +
                         [(str(p), _CODE_SPAN) for p in pages()])
def test_named_keys_exist(path, spans):
    unknown = named_keys(Path(path), spans) - KNOWN
    assert not unknown, f"{path} names {', '.join(sorted(unknown))}, which config/schema.cc does not know"


def leaves():
    return sorted(key for key in KNOWN
                  if not any(other.startswith(key + ".") for other in KNOWN) and key != "version")


@pytest.mark.parametrize("key", leaves())
def test_every_key_is_used_by_the_daemon(key):
    # By itself, or with its whole section handed over.
    section = key.rsplit(".", 1)[0]
    used = re.compile(rf"config_?(?:\.|->)(?:{re.escape(key)}\b|{re.escape(section)}[,)])")
    assert any(used.search((ROOT / path).read_text()) for path in tracked("daemon/**.cc", "daemon/**.h"))
