"""`longshore serve` as a process: it works on jobs, ends in good order, and loses nothing when it is killed."""

from __future__ import annotations

import http.client
import json
import re
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from longshore.cli.time_spans import seconds
from longshore.errors import BadInput
from tests.support.origin import Gate, Origin, Thing, status
from tests.support.program import Started, eventually, invoke, started
from tests.support.site import Client


def token(depot: Path, *arguments: str) -> str:
    made = invoke("token", "create", "--depot", depot, "--json", *arguments).ok()
    return str(made.of("token")[0]["token"])


def serving(server: Started) -> dict[str, str]:
    """Wait until the server tells its address."""

    def told() -> dict[str, str] | None:
        assert server.process.poll() is None, server.stderr
        line = server.stdout.partition("\n")[0]
        return json.loads(line) if line else None

    line: dict[str, str] = eventually(told, "the server tells its address", 120)
    return line


def client_of(server: Started, secret: str | None) -> Client:
    return Client(urlsplit(serving(server)["url"]).port or 0, secret)


def test_a_job_is_done_by_the_worker_in_the_process_and_a_signal_ends_it_in_good_order(tmp_path: Path) -> None:
    depot = tmp_path / "depot"
    secret = token(depot)
    with Origin() as origin:
        url = origin.add("/paper", Thing(b"the paper"))
        flags = ("--port", 0, "--json", "--allow-net", "127.0.0.0/8")
        with started(tmp_path / "serve", "serve", "--depot", depot, *flags) as server:
            client = client_of(server, secret)
            job = client.post("/api/v1/jobs?wait=60", doc={"url": url}).json()["job"]
            assert (job["status"], job["stage"]) == ("completed", "INDEXED")
            [artifact] = client.get(f"/api/v1/jobs/{job['job_id']}/timeline").json()["artifacts"]
            assert client.get(f"/api/v1/artifacts/{artifact['artifact_id']}/content").body == b"the paper"
            operator = client_of(server, token(depot, "--scope", "admin"))
            doctor = operator.get("/system.json?doctor=1").json()["doctor"]
            assert {"sqlite", "ledger", "store", "orphans"} <= {check["id"] for check in doctor}
            assert all(check["evidence"] for check in doctor)
            assert "journal mode wal" in operator.get("/system?doctor=1").text
            stream = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
            stream.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {secret}"})
            assert stream.getresponse().readline() == b"retry: 2000\n"  # an open stream must not hold up the end
            server.signal(signal.SIGTERM)
            ended = server.wait(120)
            stream.close()
    assert ended.code == 143
    assert "Traceback" not in ended.stderr


def test_a_second_signal_aborts_and_what_was_under_way_is_kept(tmp_path: Path) -> None:
    """A transfer that would take for ever is put down by the second signal; the job goes on in the next process."""
    depot = tmp_path / "depot"
    secret = token(depot)
    with Origin() as origin:
        gate = Gate(Thing(b"x" * 4_000_000), after=2_000_000)
        url = origin.add("/slow", gate)
        flags = ("--port", 0, "--json", "--allow-net", "127.0.0.0/8")
        with started(tmp_path / "serve", "serve", "--depot", depot, *flags) as server:
            client = client_of(server, secret)
            job = client.post("/api/v1/jobs", doc={"url": url}).json()["job"]["job_id"]
            assert gate.reached.wait(60), "the transfer is under way"
            server.signal(signal.SIGINT)
            eventually(lambda: "send the signal again to abort" in server.stderr, "the server drains", 60)
            server.signal(signal.SIGINT)
            ended = server.wait(120)
            gate.open()
        assert ended.code == 130
        assert "Traceback" not in ended.stderr
        shown = invoke("jobs", "--depot", depot, "--json").ok().lines
        assert [(line["job_id"], line["status"]) for line in shown] == [(job, "pending")]


def test_killed_between_commit_and_answer_the_repeated_request_gets_the_same_job(tmp_path: Path) -> None:
    depot = tmp_path / "depot"
    secret = token(depot)
    flags = ("--port", 0, "--json", "--no-workers")
    body = {"url": "https://a.example/once"}
    key = {"Idempotency-Key": "request-1"}
    fail = {"LONGSHORE_FAILPOINTS": "web.planned=kill"}
    with started(tmp_path / "one", "serve", "--depot", depot, *flags, env=fail) as server:
        client = client_of(server, secret)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            client.post("/api/v1/jobs", doc=body, headers=key)
        assert server.wait().code == -signal.SIGKILL
    with started(tmp_path / "two", "serve", "--depot", depot, *flags) as server:
        client = client_of(server, secret)
        [known] = client.get("/api/v1/jobs").json()["jobs"]
        again = client.post("/api/v1/jobs", doc=body, headers=key)
        assert again.json()["job"]["job_id"] == known["job_id"]
        assert again.status == 202  # the first answer, which nobody got
        plain = client.post("/api/v1/jobs", doc=body)
        assert (plain.status, plain.json()["job"]["job_id"]) == (200, known["job_id"])
        assert len(client.get("/api/v1/jobs").json()["jobs"]) == 1


def test_without_tokens_on_loopback_a_link_opens_the_dashboard_once(tmp_path: Path) -> None:
    with started(
        tmp_path / "serve", "serve", "--depot", tmp_path / "d", "--port", 0, "--json", "--no-workers"
    ) as server:
        first = serving(server)["first"]
        match = re.search(r"/first\?code=([\w-]{43})$", first)
        assert match
        client = client_of(server, None)
        opened = client.post("/first", form={"code": match[1]})
        assert opened.status == 303
        assert client.post("/first", form={"code": match[1]}).status == 401
        assert client.get("/api/v1/jobs").status == 401


def test_a_port_in_use_is_said_plainly(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = invoke("serve", "--depot", tmp_path / "d", "--port", taken.getsockname()[1], "--no-workers")
    assert ran.code == 1
    assert "in use" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_tokens_on_the_command_line(tmp_path: Path) -> None:
    depot = tmp_path / "depot"
    assert invoke("token", "list", "--depot", depot).code == 10
    made = invoke(
        "token", "create", "--depot", depot, "--scope", "read,metrics", "--name", "ci", "--expires", "30d"
    ).ok()
    assert re.fullmatch(r"lsh_[\w-]{43}\n", made.stdout)
    [listed] = invoke("token", "list", "--depot", depot, "--json").ok().of("token")
    assert (listed["name"], listed["scopes"], listed["tenant_id"]) == ("ci", ["metrics", "read"], "default")
    assert "token" not in listed
    assert made.stdout.strip() not in invoke("token", "list", "--depot", depot).ok().stdout
    invoke("token", "revoke", listed["token_id"], "--depot", depot).ok()
    assert "revoked" in invoke("token", "list", "--depot", depot).ok().stdout
    assert invoke("token", "revoke", "nobody", "--depot", depot).code == 1
    assert invoke("token", "create", "--depot", depot, "--scope", "root").code == 2
    assert invoke("token", "create", "--depot", depot, "--expires", "soon").code == 2
    assert invoke("token", "create", "--depot", depot, "--tenant", "Not A Slug").code == 2


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("30d", 2592000), ("1w", 604800)]
)
def test_spans(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "1y", "inf", "999999999999d", "9" * 400 + "w"])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(BadInput):
        seconds(text)


def test_answers_that_ask_to_wait_are_counted_and_failed_attempts_have_a_duration(tmp_path: Path) -> None:
    depot = tmp_path / "depot"
    secret = token(depot, "--scope", "admin")
    quick = {"LONGSHORE_RETRY__BASE_S": "0.01", "LONGSHORE_RETRY__CAP_S": "0.02", "LONGSHORE_RETRY__MAX_ATTEMPTS": "3"}
    with Origin() as origin:
        url = origin.add("/busy", status(503, Retry_After="0"))
        flags = ("--port", 0, "--json", "--allow-net", "127.0.0.0/8")
        with started(tmp_path / "serve", "serve", "--depot", depot, *flags, env=quick) as server:
            client = client_of(server, secret)
            job = client.post("/api/v1/jobs?wait=60", doc={"url": url}).json()["job"]
            assert (job["status"], job["reason"]) == ("failed", "http_503")
            found = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
    assert float(found["longshore_rate_limited_total"]) == 3
    assert float(found['longshore_request_duration_seconds_count{code_class="5xx"}']) == 3
    assert float(found['longshore_request_duration_seconds_sum{code_class="5xx"}']) > 0


@pytest.mark.parametrize("form", ["text", "json"])
def test_requests_and_ended_jobs_are_logged_without_secrets(tmp_path: Path, form: str) -> None:
    depot = tmp_path / "depot"
    secret = token(depot)
    with Origin() as origin:
        good, bad = origin.add("/a", Thing(b"a")) + "?token=canary", origin.add("/b", status(404))
        flags = ("--port", 0, "--json", "--allow-net", "127.0.0.0/8", "--set", f"serve.log_format={form}")
        with started(tmp_path / "serve", "serve", "--depot", depot, *flags) as server:
            client = client_of(server, secret)
            for url in (good, bad):
                client.post("/api/v1/jobs?wait=60&secret=canary", doc={"url": url})
            client.get("/livez")
            eventually(lambda: server.stderr.count("/api/v1/jobs") >= 2, "both requests are logged", 60)
            server.signal(signal.SIGTERM)
            server.process.wait(60)
            log = server.stderr
    assert "canary" not in log
    assert secret not in log
    assert "/livez" not in log, "probes are logged only at `debug`"
    if form == "json":
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        assert {"POST"} == {line["method"] for line in lines if line.get("path") == "/api/v1/jobs"}
        ended = {line["event"]: line for line in lines if line["logger"] == "longshore.jobs"}
        assert ended.keys() == {"completed", "failed"}
        assert ended["failed"]["reason"] == "http_404"
    else:
        assert "WARNING longshore.jobs failed" in log
        assert "reason=http_404" in log
