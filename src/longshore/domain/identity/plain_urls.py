"""URLs that are their own canonical form: no parser is needed to know them, nor a record to name their job.

Imports next to nothing: a list of which everything is held is answered before the parser is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

# A URL that is its own canonical form, with its host and port as [1]. Everything the WHATWG parser would change (upper
# case, default ports, dot segments, numbers as hosts, punycode, escapes it adds) does not match and takes the long way.
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
CANONICAL: Final = re.compile(
    rf"https?://((?:(?:[a-z0-9_][a-z0-9_-]*+\.)*+[a-z][a-z0-9-]*+|{_BYTE}(?:\.{_BYTE}){{3}})"
    r"(?::(?!(?:80|443)/)(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}))?)"
    r"(?:/(?!\.|%2[eE])[A-Za-z0-9._~!$&'()*+,;=:@-]*+(?:%[0-9A-Fa-f]{2}[A-Za-z0-9._~!$&'()*+,;=:@-]*+)*+)++"
    r"(?:\?[A-Za-z0-9._~!$&()*+,;=:@/?%-]*+)?"
)
MAX_PLAIN: Final = 8_192  # beyond it the long way gives the same


def are_plain(urls: Sequence[str]) -> bool:
    """Return whether nothing would change any of these."""
    if not urls:
        return True
    return all(map(CANONICAL.fullmatch, urls)) and max(map(len, urls)) <= MAX_PLAIN and "xn--" not in "\n".join(urls)


def plain_key(url: str) -> str:
    """Return the key of the job of a plain URL that stands for its work and artifact too: `keys.job_key`, by hand."""
    return sha256(f'{{"art":"{url}","kind":"JOB","url":"{url}","v":1,"work":"{url}"}}'.encode()).hexdigest()
