"""The durable metadata of a part, as `facts.json` has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from longshore.domain.model import Scope, Validators

NO_VALIDATORS: Final = Validators()


@dataclass(frozen=True, slots=True)
class PartFacts:
    """The durable metadata of a part."""

    scope: Scope
    job_id: str
    epoch: int
    url: str | None = None
    final_url: str | None = None
    validators: Validators = NO_VALIDATORS
    total: int | None = None
    durable_bytes: int = 0
    sha256: str | None = None  # of the durable bytes
    headers: Mapping[str, str] | None = None  # response headers that validation needs; None in parts of older versions
    delimited: bool = True  # a truncated body could be distinguished from a complete one
    caller: str = ""  # hash of the credentials that were sent

    @property
    def answered(self) -> str | None:
        """Return the Date of the response with the validators; it decides whether Last-Modified is strong."""
        return None if self.headers is None else self.headers.get("date")

    def as_json(self) -> bytes:
        """Serialize the facts to JSON."""
        known: dict[str, Any] = {
            "v": 1,
            "tenant_id": self.scope.tenant_id,
            "project_id": self.scope.project_id,
            "job_id": self.job_id,
            "epoch": self.epoch,
            "url": self.url,
            "final_url": self.final_url,
            "etag": self.validators.etag,
            "last_modified": self.validators.last_modified,
            "total": self.total,
            "durable_bytes": self.durable_bytes,
            "sha256": self.sha256,
            "headers": None if self.headers is None else dict(self.headers),
            "delimited": self.delimited,
            "caller": self.caller,
        }
        return json.dumps(known).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> PartFacts:
        """Parse the output of `as_json`; raise ValueError for anything else."""
        known = json.loads(raw)
        if not isinstance(known, dict) or known.get("v") != 1 or not _are_facts(known):
            raise ValueError("not the facts of a part")
        try:
            return cls(
                Scope(known["tenant_id"], known["project_id"]),
                known["job_id"],
                int(known["epoch"]),
                known["url"],
                known["final_url"],
                Validators(known["etag"], known["last_modified"]),
                known["total"],
                int(known["durable_bytes"]),
                known.get("sha256"),
                known.get("headers"),
                known.get("delimited", True),
                known.get("caller", ""),
            )
        except (KeyError, TypeError) as error:
            raise ValueError("not the facts of a part") from error


def _are_facts(known: Mapping[str, Any]) -> bool:
    """Return whether the optional fields have their types; a damaged file may be valid JSON."""
    texts = (known.get(name) for name in ("url", "final_url", "etag", "last_modified", "sha256", "caller"))
    headers = known.get("headers") or {}
    return (
        all(text is None or isinstance(text, str) for text in texts)
        and (known.get("total") is None or isinstance(known["total"], int))
        and isinstance(headers, dict)
        and all(isinstance(value, str) for value in headers.values())
    )
