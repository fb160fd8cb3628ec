"""A source's settings are one value, whether they come from hookledger.toml or from Python."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from hookledger import ConfigError, CurrentSettings, Inbox, ReconcileSettings, Seconds, SecretSettings
from hookledger.config import decode
from hookledger.providers.catalogue import find
from hookledger.receive.settings import SourceOptions, SourceSettings

SECRET = "whsec_made_up_for_the_tests"
EXPIRES = datetime(2027, 1, 31, tzinfo=UTC)

EVERYTHING: dict[str, Any] = {
    "provider": "meta",
    "secrets": [SECRET, {"secret": "env:OLD", "expires": EXPIRES}],
    "path": "/old/url",
    "types": ["invoice.*"],
    "other_types": "reject",
    "mode": "observe",
    "key": ["body:id"],
    "key_required": True,
    "repeatable": ["a"],
    "on_failed": "alert",
    "redelivery_alert": 0,
    "max_body": 1000,
    "public_url": "https://hooks.example.com/meta",
    "verify_token": "made-up-token",
    "origins": ["example.com"],
    "weight": 3,
    "max_running": 2,
    "retention": {"payloads": "30d", "events": "never"},
    "reconciled": True,
}


def from_file(name: str, values: dict[str, Any]) -> SourceSettings:
    return Inbox(settings=decode({"sources": {name: values}})).sources[name].settings


def from_python(name: str, values: dict[str, Any]) -> SourceSettings:
    return Inbox().source(name, **values).settings


both = pytest.mark.parametrize("make", [from_file, from_python])


def test_every_setting_is_an_option() -> None:
    assert set(SourceOptions.__annotations__) == set(SourceSettings.__struct_fields__)


def test_file_and_python_make_the_same_settings() -> None:
    made = from_python("s", EVERYTHING)
    assert made == from_file("s", EVERYTHING)
    assert made != SourceSettings(provider="meta")
    instances = EVERYTHING | {
        "secrets": (SECRET, SecretSettings("env:OLD", expires=EXPIRES)),
        "types": {"invoice.*"},
        "key": ("body:id",),
        "retention": made.retention,
    }
    assert from_python("s", instances) == made
    durations = {"provider": "stripe", "secrets": [SECRET], "horizon": "40d", "tolerance": 60}
    assert from_python("s", durations) == from_file("s", durations)
    fetched = {"provider": "stripe", "secrets": [SECRET], "current": {"token": "env:KEY", "timeout": "5s"}}
    instance = {"current": CurrentSettings(token="env:KEY", timeout=Seconds("5s"))}
    assert from_python("s", fetched) == from_file("s", fetched) == from_python("s", fetched | instance)
    assert from_python("s", fetched | {"current": "env:KEY"}) == from_file("s", fetched | {"current": "env:KEY"})


def test_none_is_the_default_of_every_option() -> None:
    nothing: dict[str, Any] = dict.fromkeys(SourceSettings.__struct_fields__)
    given = {"provider": "stripe", "secrets": [SECRET]}
    assert from_python("s", nothing | given) == from_python("s", given)


def test_contract_and_key_function_are_for_python_alone() -> None:
    contract = msgspec.structs.replace(find("stripe"), name="mine")
    source = Inbox().source("s", provider=contract, secrets=[SECRET], key=lambda content, headers: "k")
    assert (source.settings.provider, source.settings.key) == ("mine", ())
    assert (source.endpoint.contract, source.endpoint.key_function is not None) == (contract, True)


@both
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"on_fail": "alert"}, "source 'shop': unknown key on_fail: did you mean on_failed?"),
        ({"retention": {"bytes": "1d"}}, "the known keys are events, failed, history, payloads"),
        ({"retention": {"events": "soon"}}, "source 'shop': retention.events: 'soon' is not a duration: write"),
        ({"horizon": "soon"}, "source 'shop': horizon: 'soon' is not a duration: write 500ms"),
        ({"types": "invoice.paid"}, "source 'shop': types: expected a list, got `str`"),
        ({"mode": "watch"}, "source 'shop': mode must be 'run' or 'observe', not 'watch'"),
        ({"redelivery_alert": -1}, "source 'shop': redelivery_alert must be at least 0"),
        ({"weight": 0}, "source 'shop': weight must be from 1 to 1000, not 0"),
        ({"weight": 1.5}, "source 'shop': weight: expected `int`"),
        ({"max_running": 0}, "source 'shop': max_running must be at least 1, not 0; to stop a source, pause it"),
        ({"provider": "stirpe"}, "source 'shop': .*stripe"),
        ({"secrets": []}, "source 'shop': no secret is set, .*: set secrets"),
        ({"secrets": [" "]}, "source 'shop': the secret in the configuration is empty"),
        ({"verify_token": "x"}, "source 'shop': verify_token: Stripe does not use one; remove it"),
        ({"key": ["cookie:id"]}, "source 'shop': .* is not a field"),
        ({"reconcile": {"tokn": "x"}}, "source 'shop': unknown key reconcile.tokn: did you mean reconcile.token?"),
        ({"reconcile": {"at": "noon"}}, "source 'shop': reconcile: at must be a UTC time such as 03:00"),
        ({"secrets": [{"secret": "x", "expires": datetime(2027, 1, 31)}]}, "source 'shop': .* has no time zone"),
    ],
)
def test_wrong_setting_names_source_and_fix(make: Any, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make("shop", {"provider": "stripe", "secrets": [SECRET]} | wrong)


@both
def test_provider_is_required(make: Any) -> None:
    with pytest.raises(ConfigError, match="source 'shop': provider is required"):
        make("shop", {"secrets": [SECRET]})


def test_settings_show_neither_secrets_nor_tokens() -> None:
    made = from_python("s", EVERYTHING | {"reconcile": ReconcileSettings(token="made-up-api-token")})
    shown = f"{made!r} {Inbox().source('s', **EVERYTHING).endpoint.settings!r}"
    assert not [text for text in (SECRET, "made-up-token", "made-up-api-token") if text in shown]
