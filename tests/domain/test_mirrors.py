"""Walking candidates: every combination of answers by table, and a model of every topology under an adversary."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import dataclass, field, replace

import pytest

from longshore.domain.kinds import Status
from longshore.domain.model import Job, JobRequest, Lease
from longshore.domain.outcomes import Deferred, Failed
from longshore.domain.policy.retry import Failure, Past, next_outcome
from longshore.domain.scope import Scope
from longshore.domain.settings import RetrySettings
from longshore.domain.transfer import mirrors
from longshore.domain.transfer.mirrors import MAX_ROUNDS, Trail, Tried
from longshore.errors import Reasoned
from longshore.worker.failures import failure_of
from longshore.worker.kinds.download.mirror_walk import MirrorWalk

ANSWERS = (None, "http_404", "forbidden_address", "html_page", "http_503", "connect", "digest_mismatch")
DEFINITE = {"http_404", "forbidden_address", "html_page"}


@pytest.mark.parametrize("answers", list(itertools.product(ANSWERS, repeat=3)))
def test_every_combination_of_answers(answers: tuple[str | None, ...]) -> None:
    """The next one is the first without an answer in this walk; when all have one, definite ones are closed for good."""
    trail = Trail()
    for at, answer in enumerate(answers):
        if answer is not None:
            trail = mirrors.answered(trail, at, answer, f"message {at}")
    assert mirrors.read(trail.text()) == trail
    left = [at for at, answer in enumerate(answers) if answer is None]
    assert mirrors.next_of(3, trail) == (left[0] if left else None)
    if left:
        return
    end = mirrors.over(3, trail)
    may_work = [at for at, answer in enumerate(answers) if answer not in DEFINITE]
    assert end.final == (not may_work)
    assert end.following == (may_work[0] if may_work else None)
    assert mirrors.next_of(3, end.trail) == end.following
    if end.final:
        assert end.at == 0
    else:
        plain = [at for at in may_work if answers[at] != "digest_mismatch"]
        assert end.at == (plain or may_work)[0]
    for at in set(range(3)) - set(may_work):
        assert end.trail.tried[at].definite


def test_from_zero_happens_once_for_each_candidate() -> None:
    first = mirrors.answered(Trail(), 0, "digest_mismatch")
    assert not first.tried[0].definite
    assert mirrors.answered(replace(first, walk=1), 0, "object_changed").tried[0].definite
    between = mirrors.answered(replace(first, walk=1), 0, "connect")
    assert not mirrors.answered(replace(between, walk=2), 0, "object_changed").tried[0].definite


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "null", '{"tried":[[1]]}', '{"walk":"x"}', '{"via":3}', '{"tried":7}']
)
def test_what_is_no_trail_is_an_empty_one(text: str | None) -> None:
    assert mirrors.read(text) == Trail()


@pytest.mark.parametrize(
    ("via", "slot", "host", "mirrored", "reserved", "passed"),
    [
        ((), "a", "a", False, False, False),
        ((), "t", "a", False, True, False),  # learned before trails were kept
        ((), "t", "a", True, False, False),
        (("a", "t"), "t", "a", True, True, True),
        (("a", "b", "t"), "t", "b", False, True, True),
        (("a", "b", "t"), "t", "t", False, True, False),
        (("a", "b", "t"), "t", "u", False, True, False),
        (("a", "b", "t"), "a", "b", False, False, False),  # its slot is not the target's any more
    ],
)
def test_whose_slot_is_needed(
    via: tuple[str, ...], slot: str, host: str, mirrored: bool, reserved: bool, passed: bool
) -> None:
    trail = Trail(via=via)
    assert mirrors.is_reserved(trail, slot, host, mirrored=mirrored) == reserved
    assert mirrors.passes(trail, slot, host) == passed


def test_rounds_are_not_counted_until_there_are_too_many() -> None:
    past, settings = Past(0, None), RetrySettings(max_attempts=2)
    for rounds in range(MAX_ROUNDS + 3):
        failure = Failure("host_busy", "x", host="t", trail=Trail(rounds=rounds))
        end = next_outcome(failure, past, 0.5, settings)
        assert isinstance(end, Deferred)
        assert end.counts == (rounds > MAX_ROUNDS)
    last = next_outcome(replace(failure, trail=Trail(rounds=9)), Past(1, "host_busy"), 0.5, settings)
    assert isinstance(last, Failed)


# --- a model: one job, any topology, slots given and refused at random, workers killed at random


@dataclass
class World:
    """Hosts that are busy as an adversary likes. The job's row is what the ledger would have."""

    draw: random.Random
    urls: tuple[str, ...]
    answers: dict[str, list[str]]  # by URL: what each further request is answered; "" is the body, the last repeats
    chains: dict[str, list[list[str]]]  # by URL: the redirects' hosts of each further request
    trail: str | None = None
    host: str = "h0"
    attempts: int = 0
    reason: str | None = None
    epoch: int = 0
    asked: dict[str, int] = field(default_factory=dict)
    kills: int = 0
    slot: str = ""

    def lease(self) -> Lease:
        self.epoch += 1
        self.slot = self.host  # a claim comes with the slot of the job's host, and with no other
        request = JobRequest("download", "k", url=self.urls[0], host=self.host, mirrors=self.urls[1:])
        zeros = (
            0,
            None,
            self.attempts,
            0,
            "o",
            1,
            self.epoch,
            1,
            None,
            None,
            self.reason,
            None,
            None,
            None,
            None,
            None,
        )
        job = Job(Scope(), "j", "download", Status.PROCESSING, "LEASED", request, *zeros, 0, 0, None, None, self.trail)
        return Lease(Scope(), "j", self.epoch, "o", 1, job)

    async def take(self, host: str, trail: str | None) -> bool:
        if trail is not None:
            self.trail = trail or None
        if host == self.slot:
            return True
        if self.draw.random() < 0.5:
            return False
        self.slot = host
        return True

    async def rests(self, _host: str) -> bool:
        return self.draw.random() < 0.2

    async def ask(self, walk: MirrorWalk, url: str) -> None:
        count = self.asked[url] = self.asked.get(url, 0) + 1
        for host in self.chains[url][min(count, len(self.chains[url])) - 1]:
            await walk.hop(host)
        answer = self.answers[url][min(count, len(self.answers[url])) - 1]
        if answer:
            raise Reasoned(answer, answer)


class Killed(Exception):
    pass


async def attempt(world: World, kill: float) -> bool:
    walk, last = MirrorWalk(world.lease(), world.take, world.rests), None
    while (at := walk.next()) is not None:
        try:
            await walk.enter(at)
            if world.draw.random() < kill:
                world.kills += 1
                raise Killed
            await world.ask(walk, walk.urls[at])
            return True
        except Reasoned as error:
            walk.failed(at, error)
            last = error
    raise walk.over(last)


def lives(world: World, settings: RetrySettings, kill: float) -> tuple[str, int]:
    """Claim the job until it is over; return how it ended and after how many claims."""
    for claims in range(1, 10_000):
        try:
            if asyncio.run(attempt(world, kill)):
                return "completed", claims
        except Killed:
            continue
        except Reasoned as error:
            past = Past(world.attempts, world.reason, None, mirrors.read(world.trail))
            end = next_outcome(failure_of(error), past, 0.5, settings)
            if isinstance(end, Failed):
                return end.reason, claims
            world.trail = world.trail if end.trail is None else end.trail or None
            world.host, world.reason = end.host or world.host, end.reason
            world.attempts += end.counts
    raise AssertionError("it goes round for ever")


def host_name(number: int) -> str:
    return f"h{number}.example"


@pytest.mark.parametrize("seed", range(400))
def test_no_topology_makes_a_job_go_round(seed: int) -> None:
    """Requests for one URL are bounded by attempts (definite: one), waits for redirects and kills, whatever is busy."""
    draw = random.Random(seed)
    hosts, count = draw.randint(1, 5), draw.randint(1, 6)
    urls = tuple(f"http://{host_name(draw.randrange(hosts))}/{n}" for n in range(count))
    words = ["", "http_404", "http_410", "html_page", "http_503", "connect", "digest_mismatch"]
    answers = {url: [draw.choice(words) for _ in range(4)] for url in urls}
    redirects = draw.random() < 0.5
    chains = {
        url: [
            [host_name(draw.randrange(hosts + 3)) for _ in range(draw.randint(0, 3) if redirects else 0)]
            for _ in range(4)
        ]
        for url in urls
    }
    world = World(draw, urls, answers, chains, host=urls[0].split("/")[2])
    settings = RetrySettings(max_attempts=draw.randint(1, 5))
    _, claims = lives(world, settings, draw.choice([0.0, 0.3]))
    rounds = MAX_ROUNDS + 1 if redirects else 0
    for url, times in world.asked.items():
        definite = next(
            (n for n, word in enumerate([*answers[url]], 1) if word in {"http_404", "http_410", "html_page"}), 0
        )
        at_most = definite if definite and not redirects else settings.max_attempts * (1 + rounds) + world.kills
        assert times <= at_most + (world.kills if definite else 0)
    assert claims <= settings.max_attempts * (1 + rounds) * (1 + count) + world.kills


def test_a_kill_costs_at_most_the_request_under_way() -> None:
    """Everything that was answered before the slot of the next host was taken is in the ledger."""
    urls = tuple(f"http://h{n}.example/x" for n in range(3))
    world = World(
        random.Random(1), urls, {url: ["http_404"] for url in urls}, {url: [[]] for url in urls}, host="h0.example"
    )
    world.trail = Trail(tried={0: Tried(0, "http_404", "x", True)}).text()
    world.host = "h1.example"
    assert lives(world, RetrySettings(), 0.0)[0] == "http_404"
    assert world.asked == {urls[1]: 1, urls[2]: 1}


def test_redirects_to_ever_new_busy_hosts_end() -> None:
    """The worst redirector: each request is sent to a host that was never seen, and that has no free slot."""
    url = "http://h0.example/x"
    chains = [[host_name(number)] for number in range(1, 500)]
    world = World(random.Random(3), (url,), {url: [""]}, {url: chains}, host="h0.example")

    async def never(host: str, trail: str | None) -> bool:
        return host == world.slot

    async def awake(_host: str) -> bool:
        return False

    world.take, world.rests = never, awake  # type: ignore[method-assign]
    settings = RetrySettings(max_attempts=3)
    assert lives(world, settings, 0.0)[0] == "host_busy"
    assert world.asked[url] <= settings.max_attempts * (MAX_ROUNDS + 1)


def test_a_busy_mirror_is_where_the_job_waits() -> None:
    urls = ("http://h0.example/x", "http://h1.example/x")
    world = World(
        random.Random(1), urls, {urls[0]: ["http_404"], urls[1]: [""]}, {url: [[]] for url in urls}, host="h0.example"
    )

    async def full(host: str, trail: str | None) -> bool:
        return False

    world.take = full  # type: ignore[method-assign]
    with pytest.raises(Reasoned) as caught:
        asyncio.run(attempt(world, 0.0))
    failure = failure_of(caught.value)
    assert (failure.reason, failure.host) == ("host_busy", "h1.example")
    assert failure.trail is not None
    assert failure.trail.tried[0].definite
