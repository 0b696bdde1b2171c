"""Send changes to webhooks: each endpoint gets the changes of its project in order, each at least once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from longshore import failpoints
from longshore.depot.change_feed import facts_of, read_changes
from longshore.domain.model import Micros, Scope
from longshore.domain.policy.network import NetworkPolicy
from longshore.domain.settings import NetworkSettings
from longshore.domain.webhooks import RETRIES_S, consumer_of, event, message_id, signed, wait_s
from longshore.ledger import Ledger
from longshore.ledger.operations.webhooks import (
    Letter,
    Webhook,
    claim_webhook,
    dead_letters,
    forget_letter,
    webhook_given_up,
    webhook_refused,
    webhook_scopes,
    webhook_sent,
    webhooks,
)
from longshore.ledger.queries.feed import Change
from longshore.transfer.post import post

HOLD_S: Final = 120.0  # longer than one request takes; a process that was killed delays an endpoint by this
PAGE: Final = 100
GONE: Final = 410
failpoints.declare("webhook.sent")


@dataclass(slots=True)
class Delivered:
    """The result of one round."""

    sent: int = 0
    failed: int = 0
    given_up: int = 0


class Deliverer:
    """Sends what is due."""

    def __init__(
        self,
        ledger: Ledger,
        policy: NetworkPolicy,
        network: NetworkSettings,
        retries_s: Sequence[float] = RETRIES_S,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ledger, self._policy, self._network = ledger, policy, network
        self._retries_s, self._stopped = retries_s, stopped

    def round(self, scope: Scope | None = None) -> Delivered:
        """Send what is due to the endpoints of one project, or of all; return when nothing is due any more."""
        done = Delivered()
        for where in [scope] if scope else self._ledger.read(webhook_scopes):
            for hook in self._ledger.read(webhooks, where):
                if hook.disabled_at is None and hook.next_at <= self._ledger.now():
                    self._serve(where, hook, done)
        return done

    def again(self, scope: Scope, webhook_id: str) -> Delivered:
        """Send the dead letters of an endpoint once more."""
        done = Delivered()
        hooks = [hook for hook in self._ledger.read(webhooks, scope) if hook.webhook_id == webhook_id]
        for hook in hooks:
            for letter in self._ledger.read(dead_letters, scope, webhook_id):
                if self._refusal(hook, letter.message_id, letter.body) is None:
                    self._ledger.write(forget_letter, scope, webhook_id, letter.message_id)
                    done.sent += 1
                else:
                    done.failed += 1
        return done

    def _serve(self, scope: Scope, hook: Webhook, done: Delivered) -> None:
        consumer, held, attempts = consumer_of(hook.webhook_id), False, hook.attempts
        while not self._stopped():
            page = read_changes(self._ledger, scope, consumer, limit=PAGE)
            if not page.changes:
                break
            if not held and not self._ledger.write(claim_webhook, scope, hook.webhook_id, HOLD_S):
                return  # another process sends
            held = True
            for change in page.changes:
                if self._stopped() or not self._one(scope, hook, change, attempts, done):
                    return
                attempts = 0
        if held:  # release it: the position does not move
            self._ledger.write(webhook_sent, scope, hook.webhook_id, 0, 0)

    def _one(self, scope: Scope, hook: Webhook, change: Change, attempts: int, done: Delivered) -> bool:
        """Send one change; return whether to go on with the next one."""
        if change.kind not in hook.kinds:
            self._ledger.write(webhook_sent, scope, hook.webhook_id, change.cursor, HOLD_S)
            return True
        letter = _letter(scope, hook, change)
        reason = self._refusal(hook, letter.message_id, letter.body)
        failpoints.hit("webhook.sent")
        if reason is None:
            self._ledger.write(webhook_sent, scope, hook.webhook_id, change.cursor, HOLD_S)
            done.sent += 1
            return True
        if self._stopped():  # cut off by us: not the endpoint's failure; the next process may go on at once
            self._ledger.write(webhook_sent, scope, hook.webhook_id, 0, 0)
            return False
        done.failed += 1
        return self._failed(scope, hook, change.cursor, letter, reason, attempts + 1, done)

    def _failed(
        self, scope: Scope, hook: Webhook, cursor: int, letter: Letter, reason: str, attempts: int, done: Delivered
    ) -> bool:
        wait = wait_s(attempts, self._retries_s)
        gone = reason == f"http_{GONE}"
        if wait is None and not gone:
            told = (cursor, letter.message_id, letter.body, reason)
            self._ledger.write(webhook_given_up, scope, hook.webhook_id, *told)
            done.given_up += 1
            return False
        pause = (wait or 0.0) * random.uniform(1.0, 1.1)
        self._ledger.write(webhook_refused, scope, hook.webhook_id, reason, attempts, pause, gone=gone)
        return False

    def _refusal(self, hook: Webhook, message: str, body: str) -> str | None:
        """Send a message; return why the endpoint did not take it."""
        headers = signed(hook.secret, message, self._ledger.now() // 1_000_000, body)
        answer = post(hook.url, body.encode(), headers, self._policy, self._network, stopped=self._stopped)
        if isinstance(answer, str):
            return answer
        return None if 200 <= answer < 300 else f"http_{answer}"


def _letter(scope: Scope, hook: Webhook, change: Change) -> Letter:
    name = message_id(hook.webhook_id, change.cursor, change.kind, change.artifact_id)
    source = f"/longshore/{scope.tenant_id}/{scope.project_id}"
    return Letter(name, event(name, source, change.kind, _stamp(change.at), facts_of(change)), "", change.at)


def _stamp(at: Micros) -> str:
    return datetime.fromtimestamp(at / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
