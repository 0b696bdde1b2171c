"""Scenarios at random, small ones first, so that a failure shrinks to what it needs."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.torture.liars.world import CALLERS, HOSTS, Act, Made, Scenario, Step

_AT = st.sampled_from([0.5, 0.0, 0.02, 0.9, 1.0])
_RANGES = [
    "start",
    "end",
    "short",
    "longer",
    "total",
    "star_total",
    "no_header",
    "unit",
    "etag",
    "weak_etag",
    "no_etag",
]
_RANGES += ["garbage", "multipart"]
# Where a process is killed: between any two steps of a request, as far as it gets there.
KILLS = [
    "flow.received", "stream.received", "stream.judged", "part.write", "part.fsync", "part.facts", "part.rename",
    "publish.begin", "publish.staged", "publish.intents", "publish.linked", "settle.before", "settle.after",
    "claim.after", "stage.barrier", "link.link", "link.dirsync", "stream.adopted", "part.adopt", "flow.published",
]  # fmt: skip


def acts(objects: int) -> st.SearchStrategy[Act]:
    return st.one_of(
        st.builds(Act, st.just("ok"), how=st.sampled_from(["", "plain"])),
        st.builds(Act, st.just("cut"), _AT, st.sampled_from(["hangup", "reset", "hang"])),
        st.builds(Act, st.just("redirect"), target=st.integers(0, objects - 1), how=st.sampled_from(["302", "307"])),
        st.builds(Act, st.just("bump")),
        st.builds(Act, st.just("chunked"), how=st.sampled_from(["", "open"])),
        st.builds(Act, st.just("closed"), _AT, st.sampled_from(["", "short"])),
        st.builds(Act, st.just("status"), how=st.sampled_from(["404", "503", "500", "403"])),
        st.builds(Act, st.just("bad_range"), how=st.sampled_from(_RANGES)),
        st.builds(Act, st.just("unsatisfiable"), _AT, st.sampled_from(["", "x"])),
        st.builds(Act, st.sampled_from(["overlong", "encoded", "digest", "unchanged"])),
    )


def made(objects: int) -> st.SearchStrategy[Made]:
    return st.builds(
        Made,
        host=st.integers(0, len(HOSTS) - 1),
        over=st.sampled_from(["h1", "h1", "h1", "h2", "ftp"]),
        large=st.booleans(),
        validator=st.sampled_from(["strong", "shared", "weak", "date", "none"]),
        per_caller=st.booleans(),
        vary=st.booleans(),
        page=st.sampled_from([False, False, False, True]),
        acts=st.lists(acts(objects), min_size=1, max_size=4).map(tuple),
    )


def steps(objects: int) -> st.SearchStrategy[Step]:
    one = st.integers(0, objects - 1)
    asked = st.builds(
        Step,
        kind=st.sampled_from(["get", "get", "get", "add"]),
        thing=one,
        mirrors=st.lists(one, max_size=2, unique=True).map(tuple),
        caller=st.integers(0, len(CALLERS) - 1),
        expect=st.sampled_from(["", "", "sha256", "md5", "size", "wrong_sha256", "wrong_md5", "wrong_size"]),
        mode=st.sampled_from(["", "", "refresh", "force"]),
        segments=st.sampled_from([1, 1, 4]),
        kill=st.one_of(st.just(""), st.sampled_from(KILLS)),
        beside=st.sampled_from([False, False, False, True]),
    )
    other = st.builds(Step, kind=st.sampled_from(["change", "flip_blob", "flip_part"]), thing=one, at=_AT)
    return st.one_of(asked, asked, asked, other)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a world of one to three objects and one to five steps in it."""
    objects = draw(st.integers(1, 3))
    world = tuple(draw(made(objects)) for _ in range(objects))
    return Scenario(world, tuple(draw(st.lists(steps(objects), min_size=1, max_size=5))))
