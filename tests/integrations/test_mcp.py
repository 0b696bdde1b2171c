"""The depot as an MCP server, driven by the official client over stdio."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from tests.cli.conftest import LOOPBACK, Box, box
from tests.support.origin import Origin, Thing, status
from tests.support.program import environment

__all__ = ["box"]
TOOLS = {"fetch", "add_list", "submit", "status", "failures", "retry"}


def talk(box: Box, act: Callable[[Client], Awaitable[None]], *options: str) -> None:
    """Start the program as an agent's host does, and talk to it with the official client."""

    async def whole() -> None:
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "longshore", "mcp", *options], env=environment(box.env | LOOPBACK)
        )
        async with asyncio.timeout(120), Client(command) as client:
            await act(client)

    asyncio.run(whole())


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    found: dict[str, Any] = answer.structured_content
    return found


def test_an_agent_fetches_reads_and_retries(box: Box, origin: Origin) -> None:
    good, gone = (
        origin.add("/a.txt", Thing(b"words of a page", content_type="text/plain")),
        origin.add("/gone", status(404)),
    )
    binary = origin.add("/b.bin", Thing(b"\x00\xff\x80 bytes"))

    async def act(client: Client) -> None:
        listed = await client.list_tools()
        assert {tool.name for tool in listed.tools} == TOOLS
        assert all(tool.description and tool.input_schema for tool in listed.tools)
        templates = await client.list_resource_templates()
        assert [one.uri_template for one in templates.resource_templates] == ["longshore://artifact/{artifact_id}"]
        done = (await call(client, "fetch", urls=[good, gone, binary], wait_s=60))["jobs"]
        assert [job["status"] for job in done] == ["completed", "failed", "completed"]
        assert done[1]["reason"] == "http_404"
        (text,) = (await client.read_resource(done[0]["artifacts"][0]["resource"])).contents
        assert (text.text, text.mime_type) == ("words of a page", "text/plain")
        (blob,) = (await client.read_resource(done[2]["artifacts"][0]["resource"])).contents
        assert base64.b64decode(blob.blob) == b"\x00\xff\x80 bytes"
        (failure,) = (await call(client, "failures"))["failures"]
        assert (failure["reason"], failure["count"]) == ("http_404", 1)
        assert (await call(client, "status"))["counts"]["completed"] == 2
        again = await call(client, "retry", reason="http_404", wait_s=60)
        assert (again["planned"], again["jobs"][0]["status"]) == (1, "failed")
        planned = await call(client, "add_list", text=f"{good}\nnot a url\n", run_id="r")
        assert (planned["planned"], planned["refused_count"]) == (1, 1)
        assert planned["job_ids"] == [done[0]["job_id"]], "the same URL is the same job"

    talk(box, act)


def test_what_is_wrong_is_an_answer_and_not_the_end(box: Box) -> None:
    async def act(client: Client) -> None:
        for tool, arguments in {
            "fetch": {"urls": ["not a url"]},
            "submit": {"job_type": "nothing-declares-this"},
            "status": {"job_ids": ["nothing"]},
            "retry": {},
            "add_list": {"text": "\0\0"},
        }.items():
            answer = await client.call_tool(tool, arguments)
            assert answer.is_error, tool
            assert "Error executing" not in answer.content[0].text or ":" in answer.content[0].text, tool
        for uri in ("longshore://artifact/nothing", "longshore://artifact/..%2F..", "longshore://other/x"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        assert (await call(client, "status"))["counts"]["failed"] == 0

    talk(box, act)


def children_of(process: int) -> set[int]:
    return {int(one) for path in Path(f"/proc/{process}/task").glob("*/children") for one in path.read_text().split()}


def test_handles_survive_kill_9_and_restart(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(b"x" * 1000))
    handles: list[str] = []

    async def ask_and_kill(client: Client) -> None:
        asked = [(await call(client, "fetch", urls=[f"{url}?{number}"]))["jobs"] for number in range(20)]
        handles.extend(jobs[0]["job_id"] for jobs in asked)
        servers = [one for one in children_of(os.getpid()) if b"mcp" in Path(f"/proc/{one}/cmdline").read_bytes()]
        assert len(servers) == 1
        os.kill(servers[0], signal.SIGKILL)

    async def ask_again(client: Client) -> None:
        jobs = (await call(client, "status", job_ids=handles, wait_s=60))["jobs"]
        assert [job["job_id"] for job in jobs] == handles
        assert {job["status"] for job in jobs} <= {"completed", "skipped", "failed"}
        assert len({job["url"] for job in jobs}) == 20

    for number in range(20):
        origin.add(f"/a?{number}", Thing(b"%d" % number))
    talk(box, ask_and_kill, "--no-workers")
    assert len(handles) == 20
    assert box.counts() == {"pending": 20}
    talk(box, ask_again)
    assert sum(box.counts().values()) == 20


def test_stdout_has_the_protocol_and_nothing_else(box: Box) -> None:
    command = [sys.executable, "-m", "longshore", "mcp", "-v"]
    ran = subprocess.run(command, input=b"", capture_output=True, env=environment(box.env), check=False, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert b"new depot" in ran.stderr


def test_without_the_package_the_command_says_what_to_install(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel.helper_types", None)
    monkeypatch.delitem(sys.modules, "longshore.integrations.mcp_server", raising=False)
    ran = box("mcp")
    assert ran.code == 2
    assert "pip install 'longshore[mcp]'" in ran.stderr
