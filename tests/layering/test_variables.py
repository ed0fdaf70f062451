"""Every environment variable that the code reads stands in one table, in docs/environment.md."""

import re

from test_tree import ROOT, tracked

# A name in quotes that can only be such a variable: these prefixes are used for nothing else.
_VARIABLE = re.compile(r'"((?:HIXLD|HIXL|ASCEND|HCCL|XDG)_[A-Z_]+)"')


def test_variables_are_documented():
    page = (ROOT / "docs/environment.md").read_text()
    read = {name for path in tracked("*.cc", "*.h", "client/python/**.py")
            if path.parts[0] in ("daemon", "transports", "proto", "client")
            for name in _VARIABLE.findall((ROOT / path).read_text(errors="replace"))}
    # Text codes of the API (contract 5.3), such as HIXL_001002, have digits and are not matched.
    assert "HIXLD_SOCKET" in read
    missing = sorted(name for name in read if f"`{name}`" not in page)
    assert not missing, missing
