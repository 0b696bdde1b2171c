"""Who asks through a proxy: believed only of a proxy that the operator trusts."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
MOST_STEPS: Final = 20


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse addresses and CIDRs; raise ValueError for anything else."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    """Return whether an address is a trusted proxy's."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    found = getattr(found, "ipv4_mapped", None) or found
    return any(found in network for network in trusted)


def client_of(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """Return the client's address: walk X-Forwarded-For from its end, past trusted proxies, to the first other address.

    What stands before that was sent by the client itself and may be invented.
    """
    if not is_trusted(peer, trusted):
        return peer
    client = peer
    for step in reversed(forwarded_for.split(",")[-MOST_STEPS:]):
        text = step.strip().removeprefix("[").partition("]")[0]
        try:
            ipaddress.ip_address(text)
        except ValueError:
            break
        client = text
        if not is_trusted(text, trusted):
            break
    return client
