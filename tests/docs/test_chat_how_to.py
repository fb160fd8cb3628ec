"""docs/how-to/chat-and-voice.md: its handlers answer what the providers send, in their form."""

import re
from pathlib import Path
from typing import Any

import pytest

from hookledger import Inbox
from hookledger.providers.catalogue import contracts
from hookledger.providers.sample import sample
from hookledger.providers.sign import delivery, pairs
from hookledger.receive.endpoint import with_secrets
from tests.asgi_client import ask
from tests.path.served import test_key as key_pair

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "chat-and-voice.md"
TABLES = ("deploys (id TEXT, environment TEXT)", "reasons (id TEXT, reason TEXT)", "pressed (call TEXT, digits TEXT)")


@pytest.fixture
async def inbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    file, public = key_pair("discord_interactions", tmp_path)
    for name, value in (("SLACK_SIGNING_SECRET", "a"), ("TWILIO_AUTH_TOKEN", "b"), ("DISCORD_PUBLIC_KEY", public)):
        monkeypatch.setenv(name, value * (1 if len(value) > 1 else 32))
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    code = code.replace(
        'secrets=["env:DISCORD_PUBLIC_KEY"]',
        f'secrets=["env:DISCORD_PUBLIC_KEY"], options={{"test_key": "file:{file}"}}',
    )
    names: dict[str, Any] = {}
    exec(compile(code, PAGE.name, "exec"), names)
    made: Inbox = names["inbox"]
    await made.migrate()
    async with made.opened(handlers=1) as store:
        transaction = store.transaction()
        for table in TABLES:
            await transaction.tx.execute(f"CREATE TABLE {table}")
        await transaction.commit([])
    yield made
    await made.asgi.stop()


async def test_each_handler_of_the_page_answers_the_sample_of_its_type(inbox: Inbox) -> None:
    expected = {
        ("slack-commands", "/deploy"): b'{"response_type":"in_channel","text":"deploying to shop production"}',
        ("slack", "view_submission"): b"",
        ("slack", "block_suggestion"): b'{"options":[]}',
        ("discord", "command.deploy"): b'{"type":4,"data":{"content":"deploying to production","flags":64}}',
        ("discord", "autocomplete.deploy"): b'"choices":[{"name":"Production","value":"production"}]',
        ("discord", "component"): b'{"type":7,"data":{"content":"approved","components":[]}}',
        ("texts", "SmsStatus"): b"<Message><Body>You wrote: ",
        ("calls", "CallStatus.ringing"): b'<Gather action="/calls" numDigits="1"><Say>Press 1',
        ("calls", "CallStatus.in-progress"): b"<Say>You pressed 1.</Say><Hangup/>",
    }
    for (source, kind), answer in expected.items():
        endpoint = with_secrets(inbox.sources[source].endpoint)
        made = sample(contracts()[endpoint.contract.name], kind)
        draft = delivery(
            endpoint.contract,
            endpoint.secrets[0].key,
            made.body,
            now=inbox.clock.time(),
            event_id=made.id,
            url=endpoint.settings.public_url or "",
            more_headers=made.headers,
        )
        response = await ask(inbox.asgi, "POST", f"/{source}", draft.body, pairs(draft))
        assert response.status == 200
        assert answer in response.body, (kind, response.body)
        assert answer or not response.body
    async with inbox.opened(check=False) as store:
        assert {event.state for event in await store.search.events()} == {"processed"}
