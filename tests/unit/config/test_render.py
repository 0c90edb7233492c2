# SPDX-License-Identifier: Apache-2.0
"""The example is valid and complete; nothing shown carries a secret."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import get_args, get_type_hints

import msgspec
import pytest

from hotstage.config.load import sections
from hotstage.config.render import example, redacted_url, schema, shown, toml
from hotstage.config.section import HOLDS, Section, said
from hotstage.config.settings import Config


def test_the_example_as_it_is_gives_the_defaults():
    assert msgspec.convert(tomllib.loads(example()), Config) == Config()


def test_the_example_uncommented_holds_every_key_with_its_default():
    settings = re.sub(r"(?m)^# (?=[a-z_]+ = |\[\[)", "", example())
    tree = tomllib.loads(settings)
    for name, struct in sections():
        defaults = msgspec.to_builtins(struct())
        present = {key for key in struct.__struct_fields__ if defaults[key] is not None}
        assert present <= set(tree[name]), name
        for key in present - {"destinations", "objectives", "endpoints", "rules"}:
            assert tree[name][key] == defaults[key], f"{name}.{key}"


def test_every_key_is_explained():
    undescribed = [
        f"{name}.{key}"
        for name, definition in schema()["$defs"].items()
        for key, entry in definition["properties"].items()
        if "description" not in entry
        and "$ref" not in str(entry)
        and not key.endswith("_seconds")
        and name != "LogConfig"
    ]
    assert undescribed == []


SECRET = "S3CRET"
LEAKY = (
    f"https://user:{SECRET}@host.example/x",
    f"https://{SECRET}@host.example",
    f"https://host.example/?key={SECRET}",
    f"https://host.example?key={SECRET}",
    f"https://host.example/x#{SECRET}",
    f"https://host.example/{SECRET}",
    f"https://host.example/webhook/{SECRET}@{SECRET}/IncomingWebhook/{SECRET}",
    f"https://user:{SECRET}/x@host.example/",
    f"https://user:p?{SECRET}@host.example/",
    f"https://user:{SECRET}\\@host.example/",
    f"user:{SECRET}@host.example",
    f"{SECRET}@host.example://x",
)


def texts(struct: type[Section], path: str = "") -> Iterator[tuple[str, type[Section], str, object]]:
    """(path, struct, key, type) of every setting, of those in tables too."""
    hints = get_type_hints(struct, include_extras=True)
    for key in struct.__struct_fields__:
        yield f"{path}{key}", struct, key, hints[key]
        for inner in (get_type_hints(struct)[key], *get_args(get_type_hints(struct)[key])):
            if isinstance(inner, type) and issubclass(inner, Section):
                yield from texts(inner, f"{path}{key}.")


SETTINGS = [each for each in texts(Config) if "str" in str(get_type_hints(each[1])[each[2]])]
URLS = [each for each in SETTINGS if said(each[3], HOLDS) == "url"]


@pytest.mark.parametrize(("path", "kind"), [(path, kind) for path, _, _, kind in SETTINGS])
def test_every_text_says_what_it_holds_so_that_no_url_is_shown_by_oversight(path: str, kind: object):
    assert said(kind, HOLDS) in {"url", "path", "address", "text"}, (
        f"{path}: give it a type of config/section.py"
    )


def test_the_keys_that_hold_urls_are_these():
    assert {path for path, *_ in URLS} == {
        "engines.endpoints.url",
        "notify.destinations.url",
        "notify.explorer_url",
        "otlp.endpoint",
        "explore.agent",
        "explore.prometheus",
    }


@pytest.mark.parametrize(("path", "struct", "key"), [each[:3] for each in URLS])
@pytest.mark.parametrize("url", LEAKY)
def test_a_shown_configuration_hides_what_a_url_carries(path: str, struct: type[Section], key: str, url: str):
    row = struct(**({"name": "n"} if "name" in struct.__struct_fields__ else {}), **{key: url})
    steps = path.split(".")
    config = Config(**{steps[0]: row}) if len(steps) == 2 else replaced(steps[0], steps[1], row)
    assert SECRET not in toml(shown(config))


def replaced(section: str, key: str, row: Section) -> Config:
    return Config(**{section: dict(sections())[section](**{key: [row]})})


@pytest.mark.parametrize("url", LEAKY)
def test_a_redacted_url_holds_no_secret(url: str):
    assert SECRET not in redacted_url(url)


def test_a_redacted_url_still_tells_where_it_leads():
    assert (
        redacted_url("https://hooks.example.com/services/T000/B000/XXXX?token=abc")
        == "https://hooks.example.com/…"
    )
    assert redacted_url("http://[::1]:9178") == "http://[::1]:9178"
    assert redacted_url("http://127.0.0.1:9178/") == "http://127.0.0.1:9178"


def test_shown_toml_reads_back_as_the_same_configuration():
    config = Config()
    assert msgspec.convert(tomllib.loads(toml(shown(config))), Config) == config
