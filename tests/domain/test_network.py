"""Which addresses are public: every disguise, IPv4 and IPv6, and what `network.allow` opens."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.policy.network import NetworkPolicy, special_word
from longshore.errors import BadInput

CLOSED = NetworkPolicy()


@pytest.mark.parametrize(
    "literal",
    [
        *(
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.254",
            "127.0.0.1",
            "127.255.0.1",
        ),
        *("169.254.169.254", "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1"),
        *("192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1"),
        *("239.255.255.250", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fc00::1", "fdff::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "100::1", "2001:db8::1"),
        *("fd00:ec2::254", "2001:10::1", "5f00::1", "3fff::1", "4000::1", "::ffff:0:127.0.0.1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::ffff:7f00:1"),
        *("64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "64:ff9b:1::8.8.8.8"),
        *("2002:7f00:1::1", "2002:a9fe:a9fe::", "2002:808:808::1", "2001:0:1:2:3:4:5:6", "not an address", ""),
    ],
)
def test_not_public(literal: str) -> None:
    assert CLOSED.refusal(literal) is not None


@pytest.mark.parametrize(
    "literal",
    [
        *(
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "198.20.0.1",
            "223.255.255.1",
        ),
        *("2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"),
    ],
)
def test_public(literal: str) -> None:
    assert CLOSED.refusal(literal) is None


def test_allow_opens_exactly_its_ranges() -> None:
    policy = NetworkPolicy.allowing("127.0.0.0/8", "fd00::/8", "10.1.2.3")
    assert policy.refusal("127.0.0.1") is None
    assert policy.refusal("::ffff:127.0.0.1") is None, "the same socket, spelled for a dual-stack one"
    assert policy.refusal("fd00::1") is None
    assert policy.refusal("10.1.2.3") is None
    assert policy.refusal("10.1.2.4") == "private"
    assert policy.refusal("::1") == "loopback"
    assert policy.refusal("fc00::1") == "private"
    assert policy.refusal("8.8.8.8") is None


def test_a_wrong_range_is_named() -> None:
    with pytest.raises(BadInput, match="10\\.0\\.0\\.0/99"):
        NetworkPolicy.allowing("10.0.0.0/99")


@given(st.integers(0, 2**32 - 1))
def test_mapped_is_judged_like_what_it_hides(number: int) -> None:
    plain = IPv4Address(number)
    assert special_word(IPv6Address(f"::ffff:{plain}")) == special_word(plain)
    assert (special_word(plain) is None) <= plain.is_global or str(plain).startswith("192.0.0.")


@given(st.integers(0, 2**128 - 1))
def test_never_more_generous_than_the_standard_library(number: int) -> None:
    address = IPv6Address(number)
    if special_word(address) is None and address.ipv4_mapped is None and number >> 96 != 0x0064FF9B:
        assert address.is_global
