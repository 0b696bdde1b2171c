"""Network transfers: libcurl on the event loop, behind a narrow interface."""

from longshore.domain.policy.network import NetworkPolicy
from longshore.domain.transfer.credentials import Credential
from longshore.domain.transfer.response_head import Head
from longshore.transfer.api import Answer, Discard, FetchRequest, Memory, Sink
from longshore.transfer.client import Transfer

__all__ = [
    "Answer",
    "Credential",
    "Discard",
    "FetchRequest",
    "Head",
    "Memory",
    "NetworkPolicy",
    "Sink",
    "Transfer",
]
