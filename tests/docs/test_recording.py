"""The recorded session is a cast that players read, short, without paths of the machine that made it; the picture is its end."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from scripts.record_terminal import COMMANDS, IMAGES, TITLE
from scripts.terminal_picture import screen_of, svg

HEADER, *EVENTS = [json.loads(line) for line in (IMAGES / "session.cast").read_text().splitlines()]
SHOWN = "".join(data for _, _, data in EVENTS)


def test_it_is_an_asciicast() -> None:
    assert HEADER["version"] == 2
    assert HEADER["width"] > 0 and HEADER["height"] > 0
    assert all(kind == "o" and isinstance(data, str) for _, kind, data in EVENTS)
    times = [at for at, _, _ in EVENTS]
    assert times == sorted(times)


def test_it_lasts_a_minute_at_most() -> None:
    assert 10 < EVENTS[-1][0] <= 60


def test_it_shows_no_path_and_no_name_of_the_machine() -> None:
    written = json.dumps(HEADER) + SHOWN
    assert re.findall(r"(?<![\w.~/:])/(?:tmp|home|root|usr|var|opt|work|Users|private)\b\S*", written) == []
    assert re.findall(r"\w+@[\w.-]+", written) == [], "a prompt with a user and a host"


def test_it_shows_every_command_and_the_kill() -> None:
    plain = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", SHOWN)
    assert [command for command in COMMANDS if f"$ {command}" not in plain] == []
    assert "Killed" in plain
    assert re.search(r"\b370 artifacts", plain) and re.search(r"\b330\b", plain), "370 jobs are done, 40 of them twins"


def test_the_picture_is_the_last_screen_and_loads_nothing() -> None:
    picture = (IMAGES / "session.svg").read_text()
    screen = screen_of((data for _, _, data in EVENTS), HEADER["width"], HEADER["height"])
    assert picture == svg(screen, TITLE)
    elements = list(ET.fromstring(picture).iter())
    assert {element.tag.partition("}")[2] for element in elements} == {"svg", "title", "rect", "g", "text"}
    assert not any("href" in name for element in elements for name in element.attrib)


def test_a_picture_keeps_columns_colors_and_special_characters(tmp_path: Path) -> None:
    picture = svg(screen_of(["a  \x1b[31m<b>\x1b[0m\r\n  c"], 10, 4), "t")
    texts = {element.text: element.attrib for element in ET.fromstring(picture).iter() if element.tag.endswith("text")}
    assert set(texts) == {"a", "<b>", "c"}
    assert texts["a"]["fill"] != texts["<b>"]["fill"]
    assert float(texts["<b>"]["x"]) - float(texts["a"]["x"]) == 3 * 8.4
