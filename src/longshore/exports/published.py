"""URLs in packages that are made to be handed on: never with a login, and with a secret only if nobody objects."""

from __future__ import annotations

from dataclasses import dataclass

from longshore.domain.redaction import safe_url, says_all, without_login


@dataclass(slots=True)
class Published:
    """What becomes of URLs, and how many of those that were written look as if they held a secret."""

    no_secrets: bool = False
    secrets: int = 0

    def url(self, url: str) -> str:
        """Give a URL as it may be written; one that looks as if it held a secret counts, unless the secret is hidden."""
        plain = without_login(url)
        if says_all(plain):
            return plain
        if self.no_secrets:
            return safe_url(plain)
        self.secrets += 1
        return plain

    def leaves_out(self, url: str) -> bool:
        """Tell whether a URL cannot be written at all, because without its secret it would fetch something else."""
        return self.no_secrets and not says_all(without_login(url))

    def name(self, name: str) -> str:
        """Give the name of a work, which is its URL if it has no other."""
        plain = without_login(name)
        return safe_url(plain) if self.no_secrets and "://" in plain else plain
