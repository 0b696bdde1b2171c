"""Who may do what: token formats and what one scope implies. Secrets are random; only their hashes are kept."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from longshore.domain.model import Micros, Scope
from longshore.errors import BadInput

API_PREFIX: Final = "lsh_"
SESSION_PREFIX: Final = "lss_"

# scope -> what it includes. `admin` is the depot's operator (hosts, system, tokens); `metrics` only reads /metrics.
SCOPES: Final[dict[str, frozenset[str]]] = {
    "read": frozenset({"read"}),
    "write": frozenset({"read", "write"}),
    "admin": frozenset({"read", "write", "admin", "metrics"}),
    "metrics": frozenset({"metrics"}),
}


@dataclass(frozen=True, slots=True)
class Token:
    """A row of `tokens`; never the secret."""

    token_id: str
    kind: str  # api | session
    parent_id: str | None  # the token that a session was opened with
    name: str
    scope: Scope
    scopes: frozenset[str]
    created_at: Micros
    expires_at: Micros | None
    revoked_at: Micros | None
    last_used_at: Micros | None

    @property
    def root_id(self) -> str:
        """Return the token that limits are counted for: for a session, the token that opened it."""
        return self.parent_id or self.token_id

    def alive(self, now: Micros) -> bool:
        """Return whether the token still opens anything."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def check_scopes(names: Iterable[str]) -> frozenset[str]:
    """Return the scopes if all are known, else raise `BadInput`."""
    wanted = frozenset(names)
    if not wanted or wanted - SCOPES.keys():
        raise BadInput(f"scopes are {', '.join(SCOPES)}, not {', '.join(sorted(wanted - SCOPES.keys())) or 'none'}")
    return wanted


def allows(held: Iterable[str], needed: str) -> bool:
    """Return whether the scopes held include the one needed."""
    return any(needed in SCOPES.get(name, ()) for name in held)


def secret_hash(secret: str) -> str:
    """Hash a token for storage. The secret has 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def csrf_token(session_secret: str) -> str:
    """Derive a session's CSRF token, so that nothing has to be stored."""
    return hmac.new(session_secret.encode(), b"longshore-csrf", hashlib.sha256).hexdigest()
