"""Reads the training text: Jane Austen's six novels, as Debian packages them.

Source: Debian package r-cran-janeaustenr (`apt-get install r-cran-janeaustenr`, or
`apt-get download` and `dpkg-deb -x`). The novels were published from 1811 to 1818 and are in the
public domain; the package around them is MIT licensed. Nothing of it is copied into this tree but
what the checkpoint has learnt.
"""

import re
import struct
import zlib

DEFAULT_RDB = "/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"

# R's serialization format (XDR): object type codes and the length that stands for NA.
_STRSXP = 16
_CHARSXP = 9
_NA_LENGTH = 0xFFFFFFFF


def _chunks(rdb_bytes):
    """Yields the decompressed objects of an R lazy-load file: u32 length, then a zlib stream."""
    position = 0
    while position < len(rdb_bytes):
        decompressor = zlib.decompressobj()
        yield decompressor.decompress(rdb_bytes[position + 4 :])
        position = len(rdb_bytes) - len(decompressor.unused_data)


def _string_vector(serialized):
    """Reads one character vector; anything else in the chunk's place is an error."""
    (encoding_length,) = struct.unpack_from(">I", serialized, 14)
    position = 18 + encoding_length
    flags, count = struct.unpack_from(">II", serialized, position)
    if flags & 0xFF != _STRSXP:
        raise ValueError(f"expected a character vector, found R object type {flags & 0xFF}")
    position += 8
    lines = []
    for _ in range(count):
        flags, length = struct.unpack_from(">II", serialized, position)
        if flags & 0xFF != _CHARSXP:
            raise ValueError(f"expected a string, found R object type {flags & 0xFF}")
        position += 8
        if length == _NA_LENGTH:
            continue
        lines.append(serialized[position : position + length].decode("utf-8"))
        position += length
    return lines


def _paragraphs(lines):
    """Joins the 70-column lines into paragraphs, so that a newline means a new paragraph."""
    text = "\n".join(line.strip() for line in lines)
    text = text.replace("_", "").replace("--", " - ")
    paragraphs = (re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n", text))
    return "\n".join(part for part in paragraphs if part)


def load(path=DEFAULT_RDB):
    """Returns the novels as one ASCII byte string."""
    with open(path, "rb") as file:
        data = file.read()
    novels = [_paragraphs(_string_vector(chunk)) for chunk in _chunks(data)]
    return "\n".join(novels).encode("ascii", "ignore")
