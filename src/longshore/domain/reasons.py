"""One vocabulary for why something did not happen, used by CLI, API, metrics, events and docs, and what follows from it.

The retry table of the program is `REASONS`: nothing else decides whether a reason is tried again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from longshore.errors import BadInput


class Kind(StrEnum):
    """What a reason means for the next attempt."""

    TRANSIENT = "transient"  # try again later, with jitter; counts as an attempt
    FRESH = "restart_fresh"  # throw the part away and try once more from zero; a second time is final
    PERMANENT = "permanent"  # final at once
    POLICY = "policy"  # final at once: we refuse, not the server
    INFRASTRUCTURE = "infrastructure"  # our side: the job waits and nothing counts against it


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason's name, its kind, its meaning and the user's remedy."""

    name: str
    kind: Kind
    meaning: str
    remedy: str
    host_fault: bool = False  # counts towards the host's breaker
    by_setting: bool = False  # one setting refuses item after item: a run stops instead of failing its whole queue


_T, _F, _P, _O, _I = Kind.TRANSIENT, Kind.FRESH, Kind.PERMANENT, Kind.POLICY, Kind.INFRASTRUCTURE

_ALL: Final = (
    Reason(
        "forbidden_address",
        _O,
        "the name leads to an address that is not public",
        "allow the range with --allow-net CIDR, or for good with `longshore config set network.allow CIDR`",
        by_setting=True,
    ),
    Reason(
        "forbidden_redirect",
        _O,
        "a redirect leads where we do not go (scheme, downgrade, credentials)",
        "ask for the final URL yourself",
    ),
    Reason("forbidden_scheme", _O, "this scheme is not fetched", "use http, https, ftp or sftp"),
    Reason("bad_url", _O, "the URL is malformed or carries control characters", "correct the URL"),
    Reason(
        "redirect_loop",
        _P,
        "redirects go in circles or are too many",
        "open the URL in a browser; it may need a session",
    ),
    Reason(
        "dns",
        _T,
        "the host's name cannot be resolved; a name that does not exist is definite and not tried again",
        "check the name and the resolver",
        host_fault=True,
    ),
    Reason("connect", _T, "no connection to the host", "check that the host is up and the port open", host_fault=True),
    Reason(
        "proxy_refused", _T, "the proxy does not connect to the host", "check network.proxy and what the proxy allows"
    ),
    Reason("tls", _P, "the certificate or the TLS handshake is not acceptable", "check the certificate and the clock"),
    Reason(
        "host_key",
        _O,
        "the SSH server's key is not the known one",
        "check the key, then correct known_hosts",
        by_setting=True,
    ),
    Reason("remote_not_found", _P, "the FTP or SFTP server has no such file", "check the path"),
    Reason("auth_required", _P, "the server wants credentials", "configure credentials for the host"),
    Reason(
        "protocol_error",
        _T,
        "the answer breaks the protocol",
        "the server is faulty; try another mirror",
        host_fault=True,
    ),
    Reason("truncated", _T, "the body ended before its declared end", "tried again from the last durable byte"),
    Reason("length_mismatch", _F, "received and declared length differ", "tried once more from zero"),
    Reason("object_changed", _F, "the object changed while it was fetched", "tried once more from zero"),
    Reason("bad_range", _F, "the server's partial answer does not fit what was asked", "tried once more from zero"),
    Reason("prefix_mismatch", _F, "the server's bytes differ from the ones we hold", "tried once more from zero"),
    Reason("digest_mismatch", _F, "the bytes do not have the expected digest", "check the expected digest"),
    Reason("size_mismatch", _P, "the bytes do not have the expected size", "check the expected size"),
    Reason(
        "type_mismatch",
        _P,
        "the bytes are not of the expected type",
        "check the URL; look at the body in .staging/quarantine of the store",
    ),
    Reason("html_page", _P, "an HTML page came instead of the file", "the file may need a login or another URL"),
    Reason(
        "blocked_challenge",
        _P,
        "a challenge or login page came instead of the file",
        "the host blocks programs; ask for access",
    ),
    Reason(
        "content_encoding",
        _P,
        "the server encodes although identity was asked for",
        "try another mirror, or store the decoded bytes: `longshore config set transfer.decode store_decoded`",
    ),
    Reason(
        "too_large",
        _O,
        "the body is larger than transfer.max_bytes, than the whole disk of the store, or than a file may be (`ulimit -f`)",
        "raise transfer.max_bytes or `ulimit -f`, or put the store on a larger disk",
    ),
    Reason("header_too_large", _O, "the answer's headers are larger than allowed", "the server is faulty or hostile"),
    Reason(
        "too_slow",
        _T,
        "stalled for transfer.stall_s, slower than transfer.min_speed_bytes_s, or stopped because others waited",
        "it is tried again; raise transfer.stall_s for a server that pauses",
    ),
    Reason("deadline", _T, "not finished within transfer.deadline_s", "raise the deadline"),
    Reason(
        "quota_exceeded",
        _O,
        "the tenant's budget does not allow it",
        "raise quota.tenant_bytes or purge",
        by_setting=True,
    ),
    Reason(
        "too_many_files",
        _I,
        "the process may not open more files or connections",
        "raise `ulimit -n`; work goes on with fewer connections",
    ),
    Reason(
        "too_few_resources",
        _I,
        "the process may not start another thread, or has no memory left",
        "raise `ulimit -u`, `ulimit -v` or the limits of its container; work goes on by itself",
    ),
    Reason(
        "disk_full",
        _I,
        "no room on the store's disk; counts as an attempt only where the disk is not full but these bytes do not fit",
        "make room; waiting jobs go on by themselves, failed ones after `longshore retry`",
    ),
    Reason("disk_error", _I, "the disk reported an error", "check the disk and the kernel's log"),
    Reason("store_unavailable", _I, "the store does not answer", "check the store; work goes on by itself"),
    Reason("offline", _I, "offline, and the bytes are not stored", "run again without --offline"),
    Reason("interrupted", _I, "the worker was stopped", "run again"),
    Reason("lease_lost", _I, "another worker has the job", "nothing to do"),
    Reason("host_busy", _I, "the host has no free slot or rests", "nothing to do"),
    Reason("url_busy", _I, "another job is fetching the same URL", "nothing to do: it reuses the result"),
    Reason("canceled", _P, "canceled by request", "retry makes a new job"),
    Reason("max_attempts", _P, "tried as often as allowed", "see the last attempt's reason; `longshore retry`"),
    Reason("max_claims", _P, "started too often without an end", "the job kills its worker; see its timeline"),
    Reason("missing_external_job", _P, "the torrent is gone from the client", "add it again"),
    Reason("external_error", _P, "the torrent client reports an error", "see the client"),
    Reason("external_refused", _P, "the torrent client did not take the torrent", "check the client's log"),
    Reason(
        "not_adopted",
        Kind.POLICY,
        "the torrent client has this torrent already, and no job of this tenant added it",
        "the operator allows it with qbittorrent.adopt_foreign",
    ),
    Reason("external_stalled", _P, "the torrent made no progress for too long", "look for seeds"),
    Reason("unsafe_path", _P, "a file of the torrent leads out of its directory", "look at the client's files"),
    Reason("bad_torrent", _P, "the source is not a torrent", "check the source"),
    Reason(
        "path_unmapped",
        _I,
        "the client's files cannot be seen from here",
        "set qbittorrent.path_map; `longshore doctor` shows both paths",
    ),
    Reason("handler_error", _T, "the job's own code raised", "see the debug id in the log"),
    Reason("handler_crash", _T, "the job's own code ended its process", "see the debug id in the log"),
    Reason("handler_timeout", _T, "the job's own code took too long", "raise its time limit"),
    Reason("bad_result", _P, "the job's own code returned an invalid result", "correct the handler"),
    Reason("unknown_type", _P, "no worker knows this type of job", "install the handler"),
    Reason("input_missing", _P, "an input artifact is not there", "fetch or upload it again"),
    Reason("in_doubt", _P, "an effect may or may not have happened", "look, then retry"),
    Reason("internal_error", _T, "an internal error of longshore", "please report it with the debug id"),
)
REASONS: Final[dict[str, Reason]] = {reason.name: reason for reason in _ALL}

MAX_CODE: Final = 64
_CODE: Final = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*\Z")


def is_code(word: str) -> bool:
    """Return whether a handler may use a word as its own code: the program does not have such a reason."""
    return (
        len(word) <= MAX_CODE and _CODE.match(word) is not None and not word.startswith("http_") and word not in REASONS
    )


def check_code(word: object) -> str:
    """Return a handler's own code, or raise `BadInput`."""
    if isinstance(word, str) and is_code(word):
        return word
    if isinstance(word, str) and (word in REASONS or word.startswith("http_")):
        raise BadInput(f"{word[:80]!r} is a reason of longshore's own; a code with a dot, such as model.busy, never is")
    raise BadInput(
        f"a code has up to {MAX_CODE} lower-case letters, digits and single . _ - between them, not {str(word)[:80]!r}"
    )


_TRANSIENT_HTTP: Final = frozenset(
    {202, 408, 421, 423, 425, 429, 500, 502, 503, 504, 507, 509, 520, 521, 522, 523, 524, 529}
)
_HTTP_REMEDIES: Final = {
    401: "configure credentials for the host",
    403: "check the URL; it may need credentials",
    407: "configure the proxy's credentials in network.proxy",
}


def http_reason(status: int) -> str:
    """Return the reason for an HTTP status that is not a success."""
    return f"http_{status}"


def reason_named(name: str) -> Reason:
    """Look a reason up; `http_NNN` are made from the status."""
    if name.startswith("http_") and name[5:].isdigit():
        status = int(name[5:])
        transient = status in _TRANSIENT_HTTP
        return Reason(
            name,
            Kind.TRANSIENT if transient else Kind.PERMANENT,
            f"the server answered {status}",
            _HTTP_REMEDIES.get(status, "tried again later" if transient else "check the URL"),
            host_fault=transient and status not in (202, 429),  # neither is a fault of the host
        )
    return REASONS[name]
