"""Which addresses may be connected to. The decision is about the address of the socket, never about a name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from longshore.errors import BadInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Everything that is not the public internet (IANA special-purpose registries), with the word that a person understands.
_SPECIAL_V4: Final = tuple(
    (IPv4Network(cidr), word)
    for cidr, word in (
        ("0.0.0.0/8", "this host"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local (cloud metadata)"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.31.196.0/24", "AS112"),
        ("192.52.193.0/24", "AMT"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "AS112"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_SPECIAL_V6: Final = tuple(
    (IPv6Network(cidr), word)
    for cidr, word in (
        ("::/128", "this host"),
        ("::1/128", "loopback"),
        ("100::/64", "discard"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL_V6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
# Tunnel and translation ranges. No public host needs them, and the address that a gateway maps them to is unknown.
_DISGUISES: Final = tuple(
    (IPv6Network(cidr), word)
    for cidr, word in (
        ("2001::/32", "Teredo tunnel"),
        ("2001::/23", "protocol assignments"),
        ("2002::/16", "6to4 tunnel"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("::ffff:0:0:0/96", "translated IPv4"),
        ("::/96", "IPv4-compatible"),
    )
)


def _same_socket(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one really connects to (mapped, or NAT64's well-known prefix), else itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else address


def special_word(address: Address) -> str | None:
    """Return what kind of non-public address this is, or None for a public one. Disguises count as what they hide."""
    inner = _same_socket(address)
    if isinstance(inner, IPv4Address):
        return next((word for network, word in _SPECIAL_V4 if inner in network), None)
    if inner.scope_id is not None:
        return "link-local"
    if word := next((word for network, word in (*_SPECIAL_V6, *_DISGUISES) if inner in network), None):
        return word
    return None if inner in _GLOBAL_V6 else "reserved"


def parse_networks(cidrs: Iterable[str]) -> tuple[Network, ...]:
    """Read the ranges of `network.allow`; a plain address is a range of one."""
    networks = []
    for cidr in cidrs:
        try:
            networks.append(ip_network(cidr.strip(), strict=False))
        except ValueError:
            raise BadInput(
                f"not an address range: {cidr[:80]!r}", hint="write it like 10.0.0.0/8 or fd00::/8"
            ) from None
    return tuple(networks)


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """Who may be talked to: public addresses, and the ranges that were allowed on purpose."""

    allow: tuple[Network, ...] = field(default=())

    @classmethod
    def allowing(cls, *cidrs: str) -> NetworkPolicy:
        """Make a policy that opens these ranges."""
        return cls(parse_networks(cidrs))

    def refusal(self, literal: str) -> str | None:
        """Return why this address (of a socket, as text) is refused, or None when it may be connected to."""
        return _refusal(self, literal)

    def _judge(self, literal: str) -> str | None:
        try:
            address = ip_address(literal)
        except ValueError:
            return "unreadable"
        word = special_word(address)
        if word is None or self._allowed(address):
            return None
        return word

    def _allowed(self, address: Address) -> bool:
        same = (address, _same_socket(address))
        return any(one.version == network.version and one in network for one in same for network in self.allow)


@lru_cache(maxsize=4096)
def _refusal(policy: NetworkPolicy, literal: str) -> str | None:
    return policy._judge(literal)
