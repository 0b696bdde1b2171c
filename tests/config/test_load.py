"""Settings come from the first that speaks: flag, environment, file, default; whatever nobody knows is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from longshore.config import CONFIG_FILE, Secret, Settings, load_settings, shown
from longshore.config.load import default_of, keys_of, sections
from longshore.config.parse_values import READERS
from longshore.errors import BadInput

# Names and defaults that other people's scripts rely on (DESIGN §9).
PROMISED: dict[str, object] = {
    "network.allow": [],
    "network.proxy": None,
    "transfer.concurrency": 32,
    "transfer.max_bytes": 1 << 40,
    "retry.max_attempts": 5,
    "retry.base_s": 1.0,
    "retry.cap_s": 3600.0,
    "retry.max_claims": 100,
    "hosts.concurrency": 8,
    "hosts.rate_per_s": 0.0,
    "hosts.breaker_failures": 20,
    "hosts.breaker_cooldown_s": 30.0,
    "shard.width": 2,
    "dedupe.hardlink": True,
    "dedupe.reuse": True,
    "verify.sniff": True,
    "reconcile.interval_s": 3600.0,
    "reconcile.stale_part_s": 3600.0,
    "lease.ttl_s": 120.0,
    "lease.renew_s": 40.0,
    "qbittorrent.poll_s": 15.0,
    "qbittorrent.batch": 100,
    "qbittorrent.not_found_grace_s": 60.0,
    "qbittorrent.enqueue_attempts": 5,
}
ALSO_NAMED = [
    "network.user_agent",
    "transfer.deadline_s",
    "transfer.min_speed_bytes_s",
    "transfer.stall_s",
    "transfer.chunk_bytes",
    "transfer.segments",
    "resume.prefix_check_bytes",
    "resume.allow_without_validators",
    "io.preallocate",
    "io.preallocate_min_size_bytes",
    "dedupe.revalidate",
    "quota.free_bytes_min",
    "quota.margin_factor",
    "quota.tenant_bytes",
    "qbittorrent.url",
    "qbittorrent.username",
    "qbittorrent.password",
    "qbittorrent.api_key",
    "qbittorrent.category",
    "qbittorrent.path_map",
]


def load(depot: Path, text: str = "", environ: dict[str, str] | None = None, **flags: object) -> Settings:
    (depot / CONFIG_FILE).write_text(text)
    return load_settings(depot, environ=environ or {}, **flags)


def test_the_promised_names_and_defaults_exist(tmp_path: Path) -> None:
    values = {name: value for name, value, _ in shown(load(tmp_path))}

    assert {name: values[name] for name in PROMISED} == PROMISED
    assert set(ALSO_NAMED) <= values.keys()


def test_every_key_has_a_reader_a_sentence_and_a_way_in_from_the_environment(tmp_path: Path) -> None:
    samples = {"int": "9", "float": "0.5", "bool": "true", "str": "x", "Secret": "x"}
    for section in ["", *sections()]:
        for name, field in keys_of(section).items():
            plain = field.annotation.removesuffix(" | None")
            assert plain in READERS, name
            assert field.doc, name
            sample = samples.get(plain, json.dumps(["10.0.0.0/8"] if plain.startswith("tuple") else {}))
            special = {"revalidate": "never", "log_level": "debug", "log_format": "json"}
            sample = (special | {"max_rate": "2M", "decode": "store_decoded"}).get(name, sample)
            if field.least is not None and float(sample) < field.least:
                sample = str(field.least)
            if field.most is not None and float(sample) > field.most:
                sample = str(field.most)
            variable = f"LONGSHORE_{section}__{name}".upper() if section else f"LONGSHORE_{name}".upper()
            if variable != "LONGSHORE_DEPOT":
                both = {"LONGSHORE_SERVE__TLS_CERTIFICATE": "cert.pem"} if name == "tls_key" else {}
                settings = load(tmp_path, environ={variable: sample, **both})
                assert settings.origins[f"{section}.{name}" if section else name] == variable


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    text = "[transfer]\nconcurrency = 5\nsegments = 3\nchunk_bytes = 8192\n"
    environ = {"LONGSHORE_TRANSFER__CONCURRENCY": "6", "LONGSHORE_TRANSFER__SEGMENTS": "4"}

    settings = load(tmp_path, text, environ, transfer={"concurrency": 7})

    chosen = settings.transfer
    assert (chosen.concurrency, chosen.segments, chosen.chunk_bytes, chosen.max_redirects) == (7, 4, 8192, 10)
    assert settings.origins["transfer.concurrency"] == "flag"
    assert settings.origins["transfer.segments"] == "LONGSHORE_TRANSFER__SEGMENTS"
    assert settings.origins["transfer.chunk_bytes"] == str(tmp_path / CONFIG_FILE)


def test_allowing_by_flag_adds_to_what_is_allowed(tmp_path: Path) -> None:
    settings = load(tmp_path, '[network]\nallow = ["10.0.0.0/8"]\n', network={"allow": ["127.0.0.0/8"]})

    assert settings.network.allow == ("10.0.0.0/8", "127.0.0.0/8")


def test_lists_in_the_environment_are_json_and_seconds_take_fractions(tmp_path: Path) -> None:
    environ = {"LONGSHORE_NETWORK__ALLOW": '["127.0.0.0/8","::1/128"]', "LONGSHORE_LEASE__TTL_S": "0.75"}

    settings = load(tmp_path, environ=environ)

    assert settings.network.allow == ("127.0.0.0/8", "::1/128")
    assert settings.lease.ttl_s == 0.75


def test_places_are_the_depots_unless_given(tmp_path: Path) -> None:
    plain = load(tmp_path)
    assert (plain.ledger, plain.store) == (str(tmp_path / "ledger.db"), str(tmp_path / "store"))

    moved = load(tmp_path, 'ledger = "postgresql://db/x"\nstore = "elsewhere"\n')
    assert (moved.ledger, moved.store) == ("postgresql://db/x", str(tmp_path / "elsewhere"))

    named = load_settings(environ={"LONGSHORE_DEPOT": str(tmp_path), "LONGSHORE_STORE": "s3://bucket/x"})
    assert (named.depot, named.store) == (str(tmp_path), "s3://bucket/x")


def test_hosts_have_tables_of_their_own(tmp_path: Path) -> None:
    text = '[hosts]\nconcurrency = 3\n[hosts."Example.org"]\nrate_per_s = 0.5\n'
    environ = {"LONGSHORE_HOSTS__NAMED": '{"b.example": {"concurrency": 1}}'}

    hosts = load(tmp_path, text, environ).hosts

    assert hosts.concurrency == 3
    assert hosts.named["example.org"].rate_per_s == 0.5
    assert hosts.named["b.example"].concurrency == 1


@pytest.mark.parametrize(
    ("text", "environ", "words"),
    [
        ("[transfer]\nconcurency = 4\n", {}, ["longshore.toml", "[transfer] concurency", "did you mean concurrency?"]),
        ("[trasfer]\nconcurrency = 4\n", {}, ["trasfer is not a setting", "did you mean transfer?"]),
        ("transfer = 4\n", {}, ["[transfer] is a section"]),
        ('depot = "/x"\n', {}, ["--depot"]),
        ("[transfer\n", {}, ["not valid TOML", "line 1"]),
        ('[hosts."a.org"]\nrate = 1\n', {}, ['[hosts."a.org"] rate', "did you mean rate_per_s?"]),
        ("[hosts]\nspeed = 1\n", {}, ["[hosts] speed is not a setting"]),
        ("", {"LONGSHORE_TRANSFER__CONCURENCY": "4"}, ["LONGSHORE_TRANSFER__CONCURENCY", "did you mean concurrency?"]),
        ("", {"LONGSHORE_TRANFER__CONCURRENCY": "4"}, ["LONGSHORE_TRANFER__CONCURRENCY", "did you mean transfer?"]),
        ("", {"LONGSHORE_TRANSFER__CONCURRENCY": "many"}, ["transfer.concurrency takes a whole number, not 'many'"]),
        ("", {"LONGSHORE_TRANSFER__CONCURRENCY": "0"}, ["transfer.concurrency is at least 1, not 0"]),
        ("", {"LONGSHORE_LEASE__TTL_S": "nan"}, ["lease.ttl_s takes a number"]),
        ("", {"LONGSHORE_OFFLINE": "perhaps"}, ["offline takes true or false"]),
        ("", {"LONGSHORE_NETWORK__ALLOW": "10.0.0.0/8"}, ["network.allow takes a list", "JSON"]),
        ("", {"LONGSHORE_NETWORK__ALLOW": '["10.0.0.0/99"]'}, ["LONGSHORE_NETWORK__ALLOW", "10.0.0.0/99"]),
        ("[transfer]\nmax_bytes = true\n", {}, ["transfer.max_bytes takes a whole number"]),
    ],
)
def test_what_nobody_knows_is_refused_with_place_and_remedy(
    tmp_path: Path, text: str, environ: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(BadInput) as refused:
        load(tmp_path, text, environ)

    for word in words:
        assert word in str(refused.value)
    assert refused.value.exit_code == 2


def test_secrets_never_show_themselves(tmp_path: Path) -> None:
    environ = {
        "LONGSHORE_QBITTORRENT__PASSWORD": "hunter2",
        "LONGSHORE_NETWORK__PROXY": "http://u:hunter2@proxy:3128",
        "LONGSHORE_LEDGER": "postgresql://user:hunter2@db/x",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
    }

    settings = load(tmp_path, environ=environ)

    assert settings.qbittorrent.password == Secret("hunter2")
    assert settings.qbittorrent.password is not None
    assert settings.qbittorrent.password.reveal() == "hunter2"
    assert settings.s3.secret_access_key == Secret("hunter2")
    listing = json.dumps(list(shown(settings)))
    assert "hunter2" not in listing
    assert "hunter2" not in repr(settings) + str(settings)


def test_credentials_are_tables_by_host_and_stay_secret(tmp_path: Path) -> None:
    text = '[credentials."api.example"]\ntoken = "hunter2"\n[credentials."b.example"]\nheaders = {X-Key = "hunter2"}\n'

    settings = load(tmp_path, text)

    assert settings.credentials.named["api.example"].token == Secret("hunter2")
    assert settings.credentials.named["b.example"].headers == {"X-Key": "hunter2"}
    assert "hunter2" not in json.dumps(list(shown(settings))) + repr(settings)


def test_a_wrong_secret_is_not_repeated_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        load(tmp_path, "[qbittorrent]\npassword = [123456]\n")
    assert "123456" not in str(refused.value)


def test_foreign_variables_are_left_alone(tmp_path: Path) -> None:
    assert load(tmp_path, environ={"LONGSHORE_FAILPOINTS": "x", "LONGSHORE_VERSION": "1", "OTHER__X": "1"}).origins == {
        "depot": "flag"
    }


def test_every_default_can_be_shown() -> None:
    for section in ["", *sections()]:
        for field in keys_of(section).values():
            json.dumps(default_of(field))


def test_reading_settings_imports_nothing_heavy() -> None:
    program = "import sys, longshore.config as c; c.load_settings('/nowhere', environ={}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {"pydantic", "asyncio", "pycurl", "apsw", "rich", "platformdirs"}.isdisjoint(loaded)


def test_a_configuration_that_is_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "longshore.toml")
    with pytest.raises(BadInput, match=r"longshore.toml cannot be read: not a regular file"):
        load_settings(tmp_path, environ={})
