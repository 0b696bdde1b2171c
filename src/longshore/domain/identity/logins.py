"""Which login a request is sent with, as part of who asks.

A server may answer each login differently, so the configured credentials (`[credentials]`, netrc) of a URL's origin belong to
the caller, like the request's own headers: to the key of its job, to its parts and to the stored version of its URL. They are
kept as a hash. A login is its user name: a changed password is the same caller. A token and header fields have no name, so
there the value counts, and another token is another caller; likewise the cookies of a cookie file. Credentials in the URL are part of the URL. A request with an
Authorization header of its own is sent without the configured login.

A key is made when a job is planned, and knows the logins of the URL's own origin and of its mirrors, those in the mirrors'
URLs included. Parts and stored versions are made when the
answer is there, and know that of the final URL's origin as well. A job without a configured login has the key that it always
had.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Final

from longshore.domain.transfer.credentials import Credential, credential_for
from longshore.errors import Reasoned

if TYPE_CHECKING:
    from longshore.domain.transfer.cookie_file import CookieTable

NO_LOGIN: Final = ""
Headers = Iterable[tuple[str, str]]


class Logins:
    """The configured credentials and cookies. They are loaded when the first URL is looked at; None: there are none."""

    def __init__(
        self,
        load: Callable[[], Mapping[str, Credential]] | None = None,
        load_cookies: Callable[[], CookieTable] | None = None,
    ) -> None:
        self._load, self._load_cookies = load, load_cookies
        self._table: Mapping[str, Credential] | None = None
        self._cookies: CookieTable | None = None
        self._tenant = ""

    def of_tenant(self, tenant: str) -> Logins:
        """Return the credentials that the jobs of a tenant are sent with."""
        if self._load is None:
            return self
        if self._table is None:
            self._table = self._load()
        view = copy(self)
        view._tenant = tenant
        return view

    def __bool__(self) -> bool:
        return self._load is not None

    def of(self, url: str | None, headers: Headers = ()) -> str:
        """Return the login that a request for this URL is sent with, as a hash; empty: none."""
        if self._load is None or url is None:
            return NO_LOGIN
        named = {name.lower() for name, _ in headers}
        login = NO_LOGIN if "authorization" in named else self._credential(url)
        cookies = NO_LOGIN if "cookie" in named else self._cookie(url)
        return _both(login, cookies) if login and cookies else login or cookies

    def _cookie(self, url: str) -> str:
        """Return the cookies of a URL as a hash. One that expires later still belongs to the caller."""
        if self._cookies is None:
            if self._load_cookies is None:
                return NO_LOGIN
            self._cookies = self._load_cookies()
        pairs = self._cookies.pairs(url, 0)
        return _hash_of("cookies", sorted(pairs.items())) if pairs else NO_LOGIN

    def _credential(self, url: str) -> str:
        assert self._load is not None
        from longshore.domain.transfer.redirects import read_target  # what only looks at the ledger needs no URL parser

        if self._table is None:
            self._table = self._load()
        try:
            target = read_target(url)
        except Reasoned:  # never sent
            return NO_LOGIN
        if target.credential is not None:
            return NO_LOGIN
        credential = credential_for(self._table, target.scheme, target.host, target.hostname, self._tenant)
        return _hash(credential) if credential is not None else NO_LOGIN

    def of_request(self, url: str | None, mirrors: Sequence[str], headers: Headers = ()) -> str:
        """Return the logins that a request is sent with, its mirrors' included, as one hash; empty: none."""
        own = self.of(url, headers)
        others = [_user_of(mirror) or self.of(mirror) for mirror in mirrors]
        if not any(others):
            return own
        return hashlib.sha256(json.dumps(["longshore-logins", 1, own, others]).encode()).hexdigest()

    def along(
        self, asked: str | None, final: str | None, headers: Headers = (), *, planned: str = NO_LOGIN
    ) -> tuple[str, ...]:
        """Return the logins that an answer may depend on: of the request as it was planned, of the URL that was asked,
        and of the one that answered."""
        found = (planned, self.of(asked, headers), self.of(final) if final != asked else NO_LOGIN)
        return tuple(login for login in dict.fromkeys(found) if login)


def _user_of(url: str) -> str:
    """Return the login in a URL itself, as a hash; empty: none."""
    if "@" not in url:
        return NO_LOGIN
    from longshore.domain.transfer.redirects import read_target

    try:
        credential = read_target(url).credential
    except Reasoned:
        return NO_LOGIN
    return _hash(credential) if credential is not None else NO_LOGIN


def _hash(credential: Credential) -> str:
    who = ("user", credential.username) if credential.token is None else ("token", credential.token)
    fields = sorted((name.lower(), value) for name, value in credential.headers)
    return hashlib.sha256(json.dumps(["longshore-login", 1, who, fields]).encode()).hexdigest()


def _both(login: str, cookies: str) -> str:
    return _hash_of("both", [login, cookies])


def _hash_of(kind: str, facts: object) -> str:
    return hashlib.sha256(json.dumps(["longshore-login", 2, kind, facts]).encode()).hexdigest()


NO_LOGINS: Final = Logins()
