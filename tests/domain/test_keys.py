"""Keys: golden vectors made with the seeds' own code, and everything a key refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import longshore
from longshore.domain.identity.keys import MAX_TEXT, canonical_url, check_text, content_key, host_of, job_key, op_key
from longshore.errors import BadInput, NotAUrl

STEADY = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
JOB_KEYS = [
    (
        ("w-123", "a-456", "https://example.org/a.pdf"),
        "7a37ddd41ded299e62a162b707b1c0f229195c84515518f3239ad3fa8019b7fd",
    ),
    (
        ("work-123", "arxiv-2024-001", "https://api.arxiv.org/pdf/2024.00001v1"),
        "aa6407dc7f1e6f52ccc6b24557c8a449cedd3f4ae367ea61f5f868800f8481d2",
    ),
    (
        ("Café", "日本", 'https://example.org/%C3%A9?q=a&b="x"'),
        "f463003ba82ab8d8aea37e0fada89dfe220aab91a0073d512463bc6324d0d8bb",
    ),
    (("😀", "/", "x"), "2e51e5e8dab88160a406e3f3654b0132899d378fe29ed4a7e4053b2539dc0b94"),
]
OP_KEYS: list[tuple[str, str, dict[str, Any], str]] = [
    ("HEAD", "j1", {}, "bc0028422045355dc7fe28cc4edd8156877cb283fe9fb5a092fd0d3033ad8729"),
    (
        "HEAD",
        "j1",
        {"url": "https://example.org/"},
        "437b4e4e093cdfc8aef194ff7a06ba4fb7dfa11e993e3f8b6bb5983ad2d00277",
    ),
    (
        "HEAD",
        "j1",
        {"url": "https://example.org/", "epoch": 3},
        "3ed2cdb1a588e72a7a4b892db0b0384a7e6eddf3271cf839ff91bd730b2ad655",
    ),
    (
        "STREAM",
        "j1",
        {"url": "https://example.org/", "range_start": 0},
        "3f07b5f0c67d00133933b1ccf34794b9bd1856834dd07480bf09399fe0de854a",
    ),
    ("FINALIZE", "j1", {"sha256": "ab" * 32}, "ea9ced55c2fb48852afa770c819a9afc48c51e28a86c280ee41f306762e81a63"),
    (
        "OWN",
        "jé",
        {"a": None, "b": True, "c": [1, "x", None], "d": {"z": 1, "a": "ü"}},
        "afb5efdc38f23f9627c293829ada814209b150bac53bfb0c453dfb228a728541",
    ),
]
BAD_TEXT: list[object] = ["", "a\0b", "\ud800", "e\u0301", "x" * (MAX_TEXT + 1), None, 7, b"bytes", 1.5, ["a"]]


@pytest.mark.parametrize(("triple", "key"), JOB_KEYS)
def test_job_key_keeps_the_seeds_format(triple: tuple[str, str, str], key: str) -> None:
    assert job_key(*triple) == key
    assert longshore.job_key(*triple) == key


@pytest.mark.parametrize(("kind", "job_id", "extras", "key"), OP_KEYS)
def test_op_key_keeps_the_seeds_format(kind: str, job_id: str, extras: dict[str, Any], key: str) -> None:
    assert op_key(kind, job_id, **extras) == key
    assert longshore.op_key(kind, job_id, **dict(reversed(extras.items()))) == key


def test_content_key_is_a_hash_over_canonical_json() -> None:
    plain = content_key("t", "p", "upload", ["ab" * 32])
    assert plain == "e1a9457d1c20a95e8fc80fad14f3c5f71755275fe6dc48cc273daa361c2fee41"
    both = content_key("t", "p", "extract", ["ab" * 32, "cd" * 32], {"depth": 2, "lang": "en"})
    assert both == "7adce57b96beb459008171009d9e1f0089acb087673d9828a5584ecebf1ab61f"


def test_content_key_does_not_concatenate() -> None:
    digest = ["ab" * 32]
    keys = {content_key(t, p, "x", digest) for t, p in [("a", "bc"), ("ab", "c"), ("abc", "-"), ("a", "b")]}
    assert len(keys) == 4
    assert content_key("t", "p", "x", ["ab" * 32, "cd" * 32]) != content_key("t", "p", "x", ["cd" * 32, "ab" * 32])


@pytest.mark.parametrize("name", ["v", "kind", "job"])
def test_extras_may_not_use_reserved_names(name: str) -> None:
    taken: dict[str, Any] = {name: "j2"}
    with pytest.raises((BadInput, TypeError)):
        op_key("HEAD", "j1", **taken)


@pytest.mark.parametrize("name", ["v", "job"])
def test_a_reserved_name_is_named_in_the_error(name: str) -> None:
    taken: dict[str, Any] = {name: "j2"}
    with pytest.raises(BadInput, match=name):
        op_key("HEAD", "j1", **taken)


@pytest.mark.parametrize("value", [0.0, 1.5, float("nan")])
def test_a_float_is_refused_in_the_key_of_an_effect(value: float) -> None:
    with pytest.raises(BadInput):
        op_key("HEAD", "j1", x=value)


def test_each_number_has_one_spelling_in_the_key_of_a_job() -> None:
    def key(value: Any) -> str:
        return content_key("t", "p", "x", [], {"x": [{"deep": value}]})

    assert key(1.0) == key(1)
    assert key(-0.0) == key(0)
    assert key(float(1 << 52)) == key(1 << 52)
    assert len({key(value) for value in (0.1, 0.1 + 1e-16, 0.2, 1, 1e300, -1.5, 1e-300, True, "0.1")}) == 9


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1}, object(), {1: "x"}, {"": 1}])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"in": v}])
def test_values_with_two_spellings_are_refused(value: Any, wrap: Any) -> None:
    with pytest.raises(BadInput):
        op_key("HEAD", "j1", x=wrap(value))
    with pytest.raises(BadInput):
        content_key("t", "p", "x", [], {"x": wrap(value)})


@pytest.mark.parametrize("bad", BAD_TEXT, ids=lambda v: repr(v)[:12])
def test_bad_text_is_refused_wherever_it_stands(bad: Any) -> None:
    good = "x"
    calls: list[Callable[[], object]] = [
        lambda: job_key(bad, good, good),
        lambda: job_key(good, bad, good),
        lambda: job_key(good, good, bad),
        lambda: op_key(bad, good),
        lambda: op_key(good, bad),
        lambda: content_key(bad, good, good, []),
        lambda: content_key(good, bad, good, []),
        lambda: content_key(good, good, bad, []),
    ]
    for call in calls:
        with pytest.raises(BadInput):
            call()


@pytest.mark.parametrize("bad", [["zz"], ["AB" * 32], [1.5], [None], "ab" * 32, ["ab" * 31]])
def test_content_key_takes_digests_only(bad: Any) -> None:
    with pytest.raises(BadInput):
        content_key("t", "p", "x", bad)


def test_deep_and_huge_values_are_refused_not_a_crash() -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(BadInput):
        op_key("HEAD", "j1", x=deep)
    with pytest.raises(BadInput):
        op_key("HEAD", "j1", x=10**5_000)


def test_an_error_names_what_is_wrong() -> None:
    with pytest.raises(BadInput, match="work_id is empty"):
        job_key("", "a", "u")
    with pytest.raises(BadInput, match="canonical_url must be text, not int"):
        job_key("w", "a", 7)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=str(MAX_TEXT)):
        check_text("name", "x" * (MAX_TEXT + 1))


def test_text_may_be_as_long_as_the_limit() -> None:
    assert check_text("name", "x" * MAX_TEXT) == "x" * MAX_TEXT
    assert check_text("name", "", empty=True) == ""


@STEADY
@given(st.tuples(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1)))
def test_any_text_gives_a_key_or_bad_input(triple: tuple[str, str, str]) -> None:
    try:
        first = job_key(*triple)
    except BadInput:
        return
    assert len(first) == 64
    assert first == job_key(*triple)


@STEADY
@given(st.lists(st.text(alphabet="ab", min_size=1), min_size=6, max_size=6))
def test_different_triples_have_different_keys(texts: list[str]) -> None:
    one, other = texts[:3], texts[3:]
    assert (one == other) == (job_key(*one) == job_key(*other))


@pytest.mark.parametrize(
    ("raw", "canonical", "host"),
    [
        ("http://EXAMPLE.org:80/a/../b#f", "http://example.org/b", "example.org"),
        ("https://example.org", "https://example.org/", "example.org"),
        ("HTTPS://Example.ORG/%7Ea?b=c#d", "https://example.org/%7Ea?b=c", "example.org"),
        ("http://example.org:8080/", "http://example.org:8080/", "example.org:8080"),
        ("http://[::1]:99/x", "http://[::1]:99/x", "[::1]:99"),
        ("http://bücher.example/ä", "http://xn--bcher-kva.example/%C3%A4", "xn--bcher-kva.example"),
        ("https://example.org/a%2Fb", "https://example.org/a%2Fb", "example.org"),
        ("https://example.org/?q=a b", "https://example.org/?q=a%20b", "example.org"),
        ("https://user:pw@example.org/x", "https://user:pw@example.org/x", "example.org"),
    ],
)
def test_canonical_url_is_the_href_without_fragment(raw: str, canonical: str, host: str) -> None:
    assert canonical_url(raw) == canonical
    assert canonical_url(canonical) == canonical
    assert host_of(canonical) == host


@pytest.mark.parametrize("raw", ["", "not a url", "//x", "http://a b/", "/path", "http://"])
def test_what_is_no_url_is_refused(raw: str) -> None:
    with pytest.raises(BadInput):
        canonical_url(raw)


def test_not_a_url_is_its_own_error() -> None:
    with pytest.raises(NotAUrl):
        canonical_url("no url")
