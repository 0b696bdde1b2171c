"""Bytes over the network: libcurl on the event loop, behind one narrow seam."""

from longshore.domain.addresses import NetworkPolicy
from longshore.domain.heads import Head
from longshore.domain.limits import Credential, TransferSettings
from longshore.transfer.asks import Answer, Ask, Discard, Memory, Sink
from longshore.transfer.client import Transfer

__all__ = [
    "Answer",
    "Ask",
    "Credential",
    "Discard",
    "Head",
    "Memory",
    "NetworkPolicy",
    "Sink",
    "Transfer",
    "TransferSettings",
]
