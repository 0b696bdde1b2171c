"""Receive one body: try the candidates in order, resume where that is safe, and verify before publication."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from longshore import failpoints
from longshore.domain.identity.keys import host_of
from longshore.domain.identity.object_versions import caller_of
from longshore.domain.model import Expect, Lease
from longshore.domain.policy.disk_space import Lack
from longshore.domain.policy.retry import Gain, kind_of
from longshore.domain.reasons import Kind
from longshore.domain.transfer import content_checks, declared_digests, resume
from longshore.domain.transfer.job_headers import headers_for
from longshore.domain.transfer.response_head import Head
from longshore.errors import DiskFull, LongshoreError, Reasoned, StoreError
from longshore.ledger.operations.hosts import hop, rests
from longshore.ledger.operations.url_transfers import BUSY, begin_streaming
from longshore.ledger.records import Move
from longshore.store import Part, PartFacts, Staged
from longshore.transfer import Answer, FetchRequest
from longshore.transfer.segmented import fetch_in_pieces
from longshore.worker.kinds.download.body_sink import AskAgain, BodySink
from longshore.worker.kinds.download.dedupe import ANEW, UrlContent
from longshore.worker.kinds.download.extra_digests import digests_of, stored_digests
from longshore.worker.kinds.download.mirror_walk import MirrorWalk
from longshore.worker.kinds.download.name_exists import Resolver
from longshore.worker.kinds.download.transfer_result import NO_PART, Received, failure_telemetry, stored_head, telemetry
from longshore.worker.silent_transfers import LastByte, Waiting
from longshore.worker.transfer_slots import HostSlots

if TYPE_CHECKING:
    from longshore.domain.settings import HostsSettings, Settings
    from longshore.ledger import Ledger
    from longshore.store import Store
    from longshore.transfer import Transfer
    from longshore.worker.transfer_slots import TransferSlots

T = TypeVar("T")
failpoints.declare("stream.adopted", "stream.received", "stream.judged")
_WORTHLESS: Final = frozenset({Kind.FRESH, Kind.PERMANENT, Kind.POLICY})


class Receiver:
    """Fetches for leases."""

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        transfer: Transfer,
        threads: Executor,
        settings: Settings,
        hosts: HostsSettings,
        transfer_slots: TransferSlots,
    ) -> None:
        self._ledger, self._store, self._transfer, self._hosts = ledger, store, transfer, hosts
        self._slots, self._known = transfer_slots, ledger.backend.logins
        self._threads, self._settings = threads, settings
        self._names = Resolver()
        self._sinks: dict[tuple[str, int], BodySink] = {}  # of transfers that wait for a server
        self._giving_way: set[tuple[str, int]] = set()
        self._walks: dict[tuple[str, int], MirrorWalk] = {}
        self.active: dict[tuple[str, int], tuple[Lease, BodySink]] = {}  # large bodies under way, for progress
        self.last_byte = LastByte()

    async def receive(self, lease: Lease, known: UrlContent | None) -> Received | None:
        """Fetch from the first candidate that gives good bytes; None when the server says that nothing changed."""
        try:
            return await self._from_candidates(lease, known)
        finally:
            self.active.pop((lease.job_id, lease.epoch), None)
            self._walks.pop((lease.job_id, lease.epoch), None)
            self._sinks.pop((lease.job_id, lease.epoch), None)
            self._giving_way.discard((lease.job_id, lease.epoch))

    def moved(self, key: tuple[str, int]) -> int | None:
        """Return how many bytes a transfer has received; None while it does not wait for a server."""
        sink = self._sinks.get(key)
        return None if sink is None or sink.waits_for_disk or self._is_limited else sink.received

    def waiting(self) -> dict[tuple[str, int], Waiting]:
        """Return the transfers that wait for a server."""
        asked = {key: sink for key, sink in self._sinks.items() if not sink.waits_for_disk and not self._is_limited}
        hosts = {key: walk.at if (walk := self._walks.get(key)) else host_of(asked[key].url) for key in asked}
        return {key: Waiting(hosts[key], one.received, one.connected_to == hosts[key]) for key, one in asked.items()}

    @property
    def _is_limited(self) -> bool:
        return bool(self._transfer.rate) and self._transfer.rate.is_pausing

    def give_way(self, key: tuple[str, int]) -> None:
        """Stop a slow transfer because others wait for its slot. Its job tries another candidate, or resumes later."""
        sink = self._sinks.get(key)
        if sink is not None and sink.task is not None and key not in self._giving_way:
            self._giving_way.add(key)
            sink.task.cancel()

    async def _ask(self, lease: Lease, url: str, known: UrlContent | None) -> Received | None:
        """Request one candidate; report a transfer that was stopped for others as `too_slow`."""
        try:
            return await self._from(lease, url, known)
        except asyncio.CancelledError:
            task, key = asyncio.current_task(), (lease.job_id, lease.epoch)
            if task is None or key not in self._giving_way:
                raise
            self._giving_way.discard(key)
            if task.uncancel():  # the worker wants it to stop, too
                raise
            raise _gave_way(host_of(url), self._sinks.get(key)) from None

    async def _from_candidates(self, lease: Lease, known: UrlContent | None) -> Received | None:
        """Ask the candidates in order, each at most once, from where an earlier lease of this attempt stopped."""
        request, last = lease.job.request, None
        if lease.epoch == 1 and not request.mirrors:  # nothing to go on with, and its own host's slot is held
            try:
                return await self._ask(lease, request.url or "", known)
            except Reasoned as error:
                await self._check_name(self._walk(lease), error)
                self._walk(lease).failed(0, error, self._gain(error))
        walk = self._walk(lease)
        while (at := walk.next()) is not None:
            try:
                await walk.enter(at)
                received = await self._ask(lease, walk.urls[at], None if at else known)
            except Reasoned as error:
                await self._check_name(walk, error)
                walk.failed(at, error, self._gain(error))
                last = error
            else:
                if received is not None:
                    received.blames = tuple(walk.blames)
                return received
        raise walk.over(last)

    async def _check_name(self, walk: MirrorWalk, error: Reasoned) -> None:
        """Make a failed look-up definite if the name does not exist. (Behind a proxy the proxy looks names up.)"""
        if error.reason == "dns" and self._transfer.proxy is None and await self._names.is_unknown(walk.at):
            error.final = True
            error.args = (f"no such name: {walk.at}",)

    def _gain(self, error: Reasoned) -> Gain | None:
        """Return what a failed transfer left for the next attempt."""
        facts, settings = error.kept, self._settings.resume
        if facts is None:
            return None
        plan = resume.plan(
            facts,
            facts.url,
            answered=facts.answered,
            overlap_bytes=settings.prefix_check_bytes,
            without_validators=settings.allow_without_validators,
        )
        can_resume = not isinstance(plan, resume.FromZero)
        return Gain(facts.durable_bytes, facts.total, resumable=can_resume, resumed=error.resumed)

    def _walk(self, lease: Lease) -> MirrorWalk:
        """Return the walk of a lease; made when it is first needed."""
        key = (lease.job_id, lease.epoch)
        if key not in self._walks:
            write_async, read = self._ledger.write_async, self._ledger.read_async
            self._walks[key] = MirrorWalk(
                lease,
                lambda host, trail: write_async(hop, lease, host, defaults=self._hosts, trail=trail),
                lambda host: read(rests, host, lease.scope.tenant_id, defaults=self._hosts),
            )
        return self._walks[key]

    async def _from(self, lease: Lease, url: str, known: UrlContent | None) -> Received | None:
        """Ask one candidate, with what an earlier epoch left if that helps; at most once more from zero."""
        why = NO_PART
        if lease.epoch > 1 and (part := await self._earlier_part(lease, url)) is not None:
            try:
                return await self._go_on(lease, url, part)
            except AskAgain as useless:
                why = useless.why
        return await self._fresh(lease, url, known, why)

    async def _fresh(self, lease: Lease, url: str, known: UrlContent | None, why: str) -> Received | None:
        sink = self._sink(lease, url, _judge_fresh, None)
        validators = known.validators if known else None
        ask = FetchRequest(
            url,
            headers=_headers(lease, url),
            tenant=lease.scope.tenant_id,
            if_none_match=validators.etag if validators else None,
            if_modified_since=validators.last_modified if validators and not validators.etag else None,
            on_sent=sink.sent,
            on_hop=lambda host: self._hop(lease, host),
        )
        async with _Kept(sink, why):
            answer = await self._fetch(lease, ask, sink)
            if answer.head.status != 304 or known is None:
                got = await sink.finish()
                return await self._judged(lease, sink, answer.head, answer.elapsed_s, got, why)
            await sink.abandon(keep=False)
        if known.is_unchanged(url, answer.head, await self._stored_digests(lease, known, answer.head)):
            return None
        return await self._fresh(lease, url, None, why)  # unchanged, but not what is stored

    async def _stored_digests(self, lease: Lease, known: UrlContent, head: Head) -> dict[str, str]:
        """Return the digests of the stored bytes that a 304 can be compared by; others than SHA-256 are computed."""
        digests = {"sha256": known.artifact.sha256}
        if further := declared_digests.algorithms(Expect(), head.headers):
            digests |= await self._thread(stored_digests, self._store, lease.scope, known.artifact.pointer, further)
        return digests

    async def _go_on(self, lease: Lease, url: str, part: Part) -> Received:
        """Use the held bytes: without a request if nothing is missing, else by a range whose every claim is checked."""
        settings, facts = self._settings.resume, part.facts
        plan = resume.plan(
            facts,
            url,
            answered=facts.answered,
            overlap_bytes=settings.prefix_check_bytes,
            without_validators=settings.allow_without_validators,
        )
        known_digest = lease.job.request.expect.sha256 is not None
        match plan:
            case resume.FromZero(reason):
                await self._thread(part.discard)
                raise AskAgain(reason, f"the part is of no use: {reason}")
            case resume.Finished():
                sink = self._sink(lease, url, _judge_fresh, part)
                async with _Kept(sink, plan.reason):
                    return await self._judged(lease, sink, stored_head(facts), 0.0, await sink.take_part(), plan.reason)
            case resume.FromOffset(start, if_range):
                asked = plan
        sink = self._sink(lease, url, lambda head: resume.decide(facts, asked, head, digest_known=known_digest), part)
        ask = FetchRequest(
            url,
            headers=_headers(lease, url),
            tenant=lease.scope.tenant_id,
            start=start,
            if_range=if_range,
            on_sent=sink.sent,
            on_hop=lambda host: self._hop(lease, host),
        )
        async with _Kept(sink, asked.reason):
            answer = await self._fetch_rest(lease, ask, sink)
            if answer.head.status == 416:
                sink.decision = resume.decide(facts, asked, answer.head, digest_known=known_digest)
                body = await self._unsatisfied(sink, sink.decision)
                head = replace(stored_head(facts), status=416, content_range=answer.head.content_range)
            else:
                body, head = await sink.finish(), answer.head
                if sink.resumed_from:  # what the first answer of this version declared still holds
                    held = facts.headers or {}
                    head = replace(head, headers=declared_digests.with_digests({**held, **head.headers}, held))
            return await self._judged(lease, sink, head, answer.elapsed_s, body, asked.reason)

    async def _fetch(self, lease: Lease, ask: FetchRequest, sink: BodySink) -> Answer:
        """Fetch over one connection, or over several where that is allowed and helps."""
        if self._settings.transfer.segments < 2:
            return await self._transfer.fetch(ask, sink)
        slots = HostSlots(self._slots, lease)
        return await fetch_in_pieces(
            self._transfer, ask, sink, connections=self._settings.transfer.segments, slots=slots
        )

    async def _fetch_rest(self, lease: Lease, ask: FetchRequest, sink: BodySink) -> Answer:
        try:
            return await self._fetch(lease, ask, sink)
        except AskAgain:
            raise
        except Reasoned as error:
            if error.reason == "content_encoding" or kind_of(error.reason) is Kind.FRESH:
                raise AskAgain(error.reason, str(error)) from None  # this range is of no use; the whole object may be
            raise

    async def _unsatisfied(self, sink: BodySink, decision: resume.Decision) -> tuple[bytes | Part, str, int]:
        if isinstance(decision, resume.Finished):
            return await sink.take_part()
        raise AskAgain(decision.reason, f"416: {decision.reason}")

    async def _judged(
        self, lease: Lease, sink: BodySink, head: Head, elapsed_s: float, got: tuple[bytes | Part, str, int], why: str
    ) -> Received:
        """Compare what is here with everything that was declared and expected; what fails never gets further."""
        failpoints.hit("stream.received")
        self._sinks.pop((lease.job_id, lease.epoch), None)  # from here on it waits for us
        body, sha256, size = got
        expect, first = lease.job.request.expect, sink.first
        sniffed = content_checks.sniff(first).media_type
        fault = content_checks.length_fault(head, size=size, expect=expect)
        if fault is None and declared_digests.has_digests(expect, head.headers):
            fault = await self._digest_fault(expect, head, body, sha256)
        if fault is None and self._settings.verify.sniff and (sniffed == "text/html" or expect.media_type is not None):
            fault = self._page_fault(lease, head, first)
        if fault is not None:
            if kind_of(fault.reason) in _WORTHLESS:
                kept = await self._thread(
                    self._store.quarantine_body,
                    lease.scope,
                    lease.job_id,
                    lease.epoch,
                    body,
                    f"{fault.reason}: {fault}",
                )
                if kept:
                    fault.args = (f"{fault}; the body is kept in quarantine as {kept}",)
            raise fault
        failpoints.hit("stream.judged")
        content_type = content_checks.content_type(first, head.media_type, sniffed=sniffed)
        staged = Staged(lease.scope, lease.job_id, lease.epoch, sha256, size, content_type, body)
        received = Received(lease, staged, head, telemetry(sink, head, elapsed_s, why))
        request = lease.job.request
        if logins := self._known.of_tenant(lease.scope.tenant_id).along(
            request.canonical_url, head.url, request.headers, planned=request.login
        ):
            received.caller = caller_of(request.headers, logins)
        return received

    async def _digest_fault(self, expect: Expect, head: Head, body: bytes | Part, sha256: str) -> Reasoned | None:
        computed = {"sha256": sha256}
        if further := declared_digests.algorithms(expect, head.headers):
            computed |= await self._thread(digests_of, body, further)
        return declared_digests.digest_fault(expect, head.headers, computed)

    def _page_fault(self, lease: Lease, head: Head, first: bytes) -> Reasoned | None:
        expected = lease.job.request.expect.media_type
        urls = (head.url, lease.job.request.url or "")
        page = content_checks.page_instead(first, urls=urls, declared=head.media_type, expected=expected)
        return page or content_checks.type_mismatch(first, expected)

    def _sink(
        self, lease: Lease, url: str, judge: Callable[[Head], resume.Decision | None], part: Part | None
    ) -> BodySink:
        self._sinks[lease.job_id, lease.epoch] = sink = BodySink(
            self._store,
            lease,
            url,
            self._threads,
            judge=judge,
            small_bytes=self._settings.transfer.small_bytes,
            adopted=part,
            on_large=lambda sink: self._left_memory(lease, sink),
            caller=lambda final_url: self._logins(lease, url, final_url),
            last_byte=self.last_byte,
        )
        sink.task = asyncio.current_task()
        return sink

    def _logins(self, lease: Lease, url: str, final_url: str | None) -> str:
        """Return the logins that the bytes of an answer belong to, as a hash; empty: none."""
        known = self._known.of_tenant(lease.scope.tenant_id)
        return caller_of((), known.along(url, final_url, _headers(lease, url), planned=lease.job.request.login))

    def _left_memory(self, lease: Lease, sink: BodySink) -> None:
        """Note in the ledger that a large body has begun: from here on a claim counts, and people can watch it."""
        noted = (lease.job_id, lease.epoch) in self.active  # an earlier answer or candidate of this attempt
        self.active[lease.job_id, lease.epoch] = (lease, sink)
        if noted:
            return
        facts = {"bytes_total": sink.total, "resumed_from_bytes": sink.resumed_from}
        moves = [Move(lease, "RESUME_OK")] if sink.resumed_from else []
        moves.append(Move(lease, "STREAMING", facts))
        share = self._settings.dedupe.reuse and lease.job.request.params.get("fetch") != ANEW["fetch"]
        advanced = self._ledger.write_async(begin_streaming, lease, moves, share=share)
        advanced.add_done_callback(lambda done: _stop_if_refused(done, sink))

    async def _earlier_part(self, lease: Lease, url: str) -> Part | None:
        """Take over what an earlier epoch made durable: copied and hashed again before anything is asked."""
        facts = await self._thread(self._store.old_part, lease.scope, lease.job_id)
        if facts is None or facts.url != url or facts.epoch >= lease.epoch:
            return None
        if facts.caller != self._logins(lease, url, facts.final_url):
            return None  # it came for another login
        part = await self._thread(self._adopt, lease, facts)
        failpoints.hit("stream.adopted")
        return part

    def _adopt(self, lease: Lease, facts: PartFacts) -> Part | None:
        part = self._store.part(lease.scope, lease.job_id, lease.epoch, adopt=facts)
        if part.size_bytes:
            return part
        part.discard()
        return None

    async def _hop(self, lease: Lease, host: str) -> bool:
        """Acquire a slot of a redirect's target host, or raise so that the job waits for one."""
        return await self._walk(lease).hop(host)

    def _thread(self, call: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


def _gave_way(host: str, sink: BodySink | None) -> Reasoned:
    """Return the error of a slow transfer that was stopped for others: its bytes count, the host is not blamed."""
    error = Reasoned("too_slow", f"{host}: hardly a byte came, and others waited for the place")
    error.blameless = True
    if sink is not None:
        error.kept, error.resumed = sink.kept, sink.has_resumed
    return error


def _headers(lease: Lease, url: str) -> tuple[tuple[str, str], ...]:
    """Return the job's headers that may be sent to this candidate: a mirror must not receive the original's secrets."""
    request = lease.job.request
    return headers_for(request.headers, request.url or url, url)


class _Kept:
    """Close the sink however the transfer ends; keep bytes that a later attempt can use."""

    def __init__(self, sink: BodySink, why: str) -> None:
        self._sink, self._why = sink, why
        self._began = time.monotonic()

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Reasoned | StoreError):
            error.facts = failure_telemetry(self._sink, time.monotonic() - self._began, self._why) | error.facts
        if isinstance(error, Reasoned) and error.retry_after_s is not None:
            error.facts["retry_after_s"] = error.retry_after_s
        if error is not None:
            await self._sink.abandon(keep=_worth_keeping(error))
        if isinstance(error, Reasoned):
            error.kept, error.resumed = self._sink.kept, self._sink.has_resumed


def _worth_keeping(error: BaseException) -> bool:
    """Bytes of an attempt that may go on are kept; those of one that must start over, or is over, are not."""
    if isinstance(error, DiskFull) and error.lack == Lack.OUTGROWN:
        return False  # its own bytes fill the disk
    if isinstance(error, Reasoned) and (error.disowned or error.reason == BUSY):  # another job brings them all
        return False
    return not isinstance(error, (Reasoned, StoreError)) or kind_of(error.reason) not in _WORTHLESS


def _judge_fresh(head: Head) -> resume.Decision | None:
    """Take a 200, or a 206 that is the whole object; any other piece is not what was asked for."""
    if head.status == 206 and not (head.content_range and head.content_range.whole):
        raise Reasoned("bad_range", "a piece came where the whole object was asked for")
    return None


def _stop_if_refused(advanced: asyncio.Future[list[Any]], sink: BodySink) -> None:
    """Stop the transfer if the ledger reports that the lease is lost."""
    if not advanced.cancelled():
        refused = advanced.exception() or next((answer for answer in advanced.result() if answer is not None), None)
        if isinstance(refused, LongshoreError):
            sink.fail(refused)
