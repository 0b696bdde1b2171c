"""Load settings. Precedence: flag, environment, `longshore.toml` in the depot, default.

An unknown key is an error in every source, so that a misspelled setting is never silently ignored.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from stat import S_ISREG
from typing import Any, Final, NamedTuple

from longshore.config.parse_values import read_value
from longshore.domain.places import check_is_path, is_address, without_login
from longshore.domain.settings import SHOWN_SECRET, CredentialSettings, HostSettings, Key, Secret, Section, Settings
from longshore.errors import BadInput

CONFIG_FILE: Final = "longshore.toml"
ENV_PREFIX: Final = "LONGSHORE_"
# The standard AWS variables; Longshore's own settings take precedence.
_AWS: Final = {
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "access_key_id": ("AWS_ACCESS_KEY_ID",),
    "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
}


# The URLs that a ledger or a store may have; everything else is a path.
_SERVICES: Final = {
    "ledger": ("postgresql://", "postgres://"),
    "store": ("s3://", "postgresql://", "postgres://", "file://"),
}
# Sections that also contain one table per name, under `named`.
NAMED: Final[dict[str, type[Section]]] = {"hosts": HostSettings, "credentials": CredentialSettings}


class Given(NamedTuple):
    """One value from one source. The section is "" at the top level."""

    section: str
    key: str
    value: object
    origin: str


@cache
def sections() -> dict[str, type[Section]]:
    """Return the class of each section."""
    found = {name: type(getattr(Settings, name)) for name in Settings.__annotations__}
    return {name: record for name, record in found.items() if issubclass(record, Section)}


def keys_of(section: str) -> dict[str, Key]:
    """Return the keys of a section; "" is the top level."""
    return sections()[section].KEYS if section else Settings.KEYS


def default_depot() -> str:
    """Return the default path of the depot."""
    import platformdirs

    return platformdirs.user_data_dir("longshore", appauthor=False)


def load_settings(
    depot: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None, **flags: Any
) -> Settings:
    """Read all sources. A flag is a top-level key (`offline=True`) or a section (`network={"allow": […]}`)."""
    environ = os.environ if environ is None else environ
    where, origin = find_depot(depot, environ)
    if os.path.exists(where) and not os.path.isdir(where):
        raise BadInput(f"{where} is a file, and a depot is a directory", hint="name a directory with --depot")
    given = [Given("", "depot", where, origin)] if origin else []
    given += _aws(environ)
    given += _from_file(os.path.join(where, CONFIG_FILE))
    given += _from_environment(environ)
    given += _from_flags(flags)
    return _assemble(where, given)


def find_depot(depot: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Return the path of the depot, and which flag or variable named it."""
    if depot:
        check_is_path("--depot", os.fspath(depot))
        return os.path.abspath(depot), "flag"
    if environ.get("LONGSHORE_DEPOT"):
        check_is_path("LONGSHORE_DEPOT", environ["LONGSHORE_DEPOT"])
        return os.path.abspath(os.path.expanduser(environ["LONGSHORE_DEPOT"])), "LONGSHORE_DEPOT"
    return default_depot(), ""


def _aws(environ: Mapping[str, str]) -> Iterator[Given]:
    for key, names in _AWS.items():
        for name in names:
            if environ.get(name):
                yield Given("s3", key, environ[name], name)
                break


def _opened_regular(path: str, flags: int) -> int:
    """Open a regular file; a FIFO would wait for a writer."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


def _from_file(path: str) -> Iterator[Given]:
    try:
        with open(path, encoding="utf-8", opener=_opened_regular) as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not valid TOML: {error}") from None
    yield from _from_table(read_table(text, path), path, forbidden=("depot",))


def read_table(text: str, path: str) -> dict[str, Any]:
    """Parse the text of a configuration file."""
    import tomllib  # most depots have no such file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not valid TOML: {error}") from None


def check_table(table: Mapping[str, Any], path: str) -> None:
    """Raise `BadInput` if a configuration file with this table could not be loaded."""
    _assemble(os.path.dirname(path), list(_from_table(table, path, forbidden=("depot",))))


def _from_table(table: Mapping[str, Any], origin: str, forbidden: Iterable[str] = ()) -> Iterator[Given]:
    for name, value in table.items():
        if name in sections():
            if not isinstance(value, Mapping):
                raise BadInput(f"{origin}: [{name}] is a section, not a value")
            for key, inner in value.items():
                yield _checked(Given(name, key, inner, origin))
        elif name in forbidden:
            raise BadInput(f"{origin}: {name} is set by --depot or LONGSHORE_DEPOT, not in the depot's own file")
        else:
            yield _checked(Given("", name, value, origin))


def _from_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    for name in sorted(environ):
        if not name.startswith(ENV_PREFIX):
            continue
        section, double, key = name[len(ENV_PREFIX) :].lower().partition("__")
        if double:
            if section not in sections():
                raise BadInput(f"{name}: unknown section {section!r}{_did_you_mean(section, sections())}")
            yield _checked(Given(section, key, environ[name], name))
        elif section in keys_of("") and section != "depot" and environ[name] != "":
            yield Given("", section, environ[name], name)


def _from_flags(flags: Mapping[str, Any]) -> Iterator[Given]:
    yield from _from_table({name: value for name, value in flags.items() if value is not None}, "flag")


def _checked(given: Given) -> Given:
    """Raise `BadInput` for an unknown key, with a suggestion."""
    known = keys_of(given.section)
    if given.key in known:
        return given
    if given.section in NAMED and isinstance(given.value, Mapping):
        return Given(given.section, "named", {given.key: given.value}, given.origin)
    place = f"[{given.section}] {given.key}" if given.section else given.key
    names = known if given.section else [*known, *sections()]
    raise BadInput(f"{given.origin}: {place} is not a setting{_did_you_mean(given.key, names)}")


def key_named(name: str, keys: Mapping[str, Key], place: str) -> Key:
    """Return the declaration of a key, or raise `BadInput` with a suggestion."""
    if name not in keys:
        raise BadInput(f"{place} {name} is not a setting{_did_you_mean(name, keys)}")
    return keys[name]


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    import difflib

    names = list(known)
    close = difflib.get_close_matches(word, names, n=1) or [name for name in names if name.startswith(word)]
    return f"; did you mean {close[0]}?" if close else "; `longshore config` shows all of them"


def _assemble(where: str, given: Iterable[Given]) -> Settings:
    values: dict[str, dict[str, Any]] = {"": {"depot": where}}
    origins: dict[str, str] = {}
    for one in given:
        name = f"{one.section}.{one.key}" if one.section else one.key
        value = read_value(keys_of(one.section)[one.key], one.value, name, one.origin)
        section = values.setdefault(one.section, {})
        if one.key == "named":
            value = _merge_named(one.section, section.get("named", {}), value, one.origin)
        if name == "network.allow" and one.origin == "flag":  # a flag extends the list
            value = (*section.get("allow", ()), *value)
        section[one.key] = value
        origins[name] = one.origin
    top = values.pop("")
    for name, file in (("ledger", "ledger.db"), ("store", "store")):
        _check_address(name, top.get(name) or "", origins.get(name, ""))
        top[name] = _place(where, top.get(name), file)
    for name in ("depot", "ledger", "store"):
        check_place(name, top[name])
    for name, content in values.items():
        top[name] = _section(name, content, origins)
    return Settings(**top, origins=origins)


def _section(name: str, content: dict[str, Any], origins: Mapping[str, str]) -> Any:
    try:
        return sections()[name](**content)
    except ValueError as error:
        places = sorted({origins[f"{name}.{key}"] for key in content})
        raise BadInput(f"{', '.join(places)}: [{name}]: {error}") from None


def _merge_named(section: str, known: Mapping[str, Any], table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    merged, record = dict(known), NAMED[section]
    wanted = record.KEYS
    for name, content in table.items():
        if not isinstance(content, Mapping):
            raise BadInput(f'{origin}: [{section}."{name}"] takes a table')
        for key in content:
            if key not in wanted:
                raise BadInput(f'{origin}: [{section}."{name}"] {key} is not a setting{_did_you_mean(key, wanted)}')
        place = f"{section}.{name}"
        read = {key: read_value(wanted[key], value, f"{place}.{key}", origin) for key, value in content.items()}
        merged[name.lower()] = record(**read)
    return merged


def check_place(name: str, path: str) -> None:
    """Reject a path that is not UTF-8 before anything is created there: SQLite and the ledger store only text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = path.encode(errors="backslashreplace").decode()
        raise BadInput(
            f"the path of the {name} is not UTF-8: {shown}", hint="rename the directory, or name another with --depot"
        ) from None


def _check_address(name: str, given: str, origin: str) -> None:
    """Raise `BadInput` for the URL of a service that is not supported, before a directory is made of it."""
    if is_address(given) and not given.startswith(_SERVICES[name]):
        said = f"--{name}" if origin == "flag" else origin
        known = " or ".join(f"{service}…" for service in _SERVICES[name])
        raise BadInput(
            f"{said}: {without_login(given)} is not a {name}", hint=f"a {name} is a path on this machine, {known}"
        )


def _place(depot: str, given: str | None, name: str) -> str:
    """Resolve a path relative to the depot; return URLs unchanged."""
    if not given:
        return os.path.join(depot, name)
    return given if "://" in given else os.path.join(depot, os.path.expanduser(given))


def shown(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    """Yield every setting as (name, value without secrets, origin)."""
    for name in keys_of(""):
        yield name, _without_secret(getattr(settings, name)), settings.origins.get(name, "default")
    for section in sections():
        record = getattr(settings, section)
        for key in keys_of(section):
            dotted = f"{section}.{key}"
            yield dotted, _without_secret(getattr(record, key)), settings.origins.get(dotted, "default")


def _without_secret(value: Any) -> Any:
    if isinstance(value, Secret):
        return str(value)
    if isinstance(value, str):
        return without_login(value)
    if isinstance(value, Mapping):
        return {name: _without_secret(item) for name, item in value.items()}
    if isinstance(value, CredentialSettings):
        return {name: SHOWN_SECRET for name, item in value.values().items() if item}
    if isinstance(value, Section):
        return {name: _without_secret(item) for name, item in value.values().items() if item not in (None, {})}
    return list(value) if isinstance(value, tuple) else value


def default_of(key: Key) -> Any:
    """Return the default of a key as the user would write it."""
    return _without_secret(key.default)


__all__ = [
    "CONFIG_FILE",
    "default_depot",
    "default_of",
    "keys_of",
    "load_settings",
    "sections",
    "shown",
]
