"""URLs in published packages: never with a login, and without other secrets if `no_secrets` is set."""

from __future__ import annotations

from dataclasses import dataclass

from longshore.domain.policy.redaction import safe_text, safe_url, says_all, without_login


@dataclass(slots=True)
class Published:
    """The rules for URLs in an export, and the number of written URLs that seem to contain a secret."""

    no_secrets: bool = False
    secrets: int = 0

    def url(self, url: str) -> str:
        """Return a URL without its login; hide what looks like a secret with `no_secrets`, otherwise count the URL."""
        plain = without_login(url)
        if says_all(plain):
            return plain
        if self.no_secrets:
            return safe_url(plain)
        self.secrets += 1
        return plain

    def leaves_out(self, url: str) -> bool:
        """Return whether a URL must be omitted, because without its secret it would fetch something else."""
        return self.no_secrets and not says_all(without_login(url))

    def name(self, name: str) -> str:
        """Return the name of a work, which may be its URL, without secrets."""
        plain = without_login(name)
        return safe_text(plain, limit=None) if self.no_secrets else plain
