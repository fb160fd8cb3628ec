"""Deploys are requested by a Slack command or a Discord command: each use once, however often it is delivered, and
answered with the number that it got.

Run `python show_deploys.py` to see it.
"""

from pathlib import Path
from typing import Any

from hookledger import Answer, Event, Inbox, Op, Permanent
from hookledger.answers import discord, slack

inbox = Inbox()  # its database is named in hookledger.toml

# Only Discord has its private key: `hookledger send` signs with one made for tests, if there is one.
TEST_KEY = Path("test-key.pem")
OPTIONS: dict[str, Any] = {"test_key": f"file:{TEST_KEY}"} if TEST_KEY.exists() else {}

commands = inbox.source("slack", provider="slack_commands", secrets=["env:SLACK_SIGNING_SECRET"])
bot = inbox.source("discord", provider="discord_interactions", secrets=["env:DISCORD_PUBLIC_KEY"], options=OPTIONS)

TABLES = """
    CREATE TABLE IF NOT EXISTS deploys (
        number INTEGER PRIMARY KEY, environment TEXT NOT NULL, requested_by TEXT NOT NULL, approved_by TEXT
    );
"""
DEPLOYS = Path("deploys")
"""Where a real one would be started: a file for each."""
ENVIRONMENTS = ("production", "staging")


# A desired state: the same deploy may be started again under its number.
@inbox.effect(repeat="safe")
def start_deploy(op: Op, number: int, environment: str) -> None:
    DEPLOYS.mkdir(exist_ok=True)
    (DEPLOYS / str(number)).write_text(environment)


async def request_deploy(event: Event, environment: str, user: str) -> int:
    """Return the number of the deploy. It commits with the answer, and the deploy starts after that."""
    number: int = await event.tx.fetchval(
        """
        INSERT INTO deploys (number, environment, requested_by)
        SELECT coalesce(max(number), 0) + 1, $1, $2 FROM deploys RETURNING number
        """,
        environment,
        user,
    )
    await event.later(start_deploy, str(number), number=number, environment=environment)
    return number


# ── Slack ──


@commands.answer("/deploy", deadline="2.5s", late=slack.message("working on it"))
async def deploy_from_slack(event: Event) -> Answer:
    environment = event.json["text"].split()[-1:]
    if not environment or environment[0] not in ENVIRONMENTS:
        # Slack shows only answers with 200: what the user did wrong is an answer as any other.
        return slack.message(f"usage: /deploy {' | '.join(ENVIRONMENTS)}")
    number = await request_deploy(event, environment[0], event.json["user_id"])
    return slack.message(f"deploy {number} to {environment[0]}", in_channel=True)


# ── Discord ──


@bot.answer("command.deploy", deadline="2.5s", failed=discord.message("that did not work", ephemeral=True))
async def deploy_from_discord(event: Event) -> Answer:
    options = {option["name"]: option["value"] for option in event.json["data"].get("options", ())}
    if options.get("environment") not in ENVIRONMENTS:
        raise Permanent("the command has no known environment: is the registered command older than this code?")
    number = await request_deploy(event, options["environment"], event.json["member"]["user"]["id"])
    button = {"type": 2, "style": 1, "label": "Approve", "custom_id": f"approve:{number}"}
    return discord.message(
        f"deploy {number} to {options['environment']}", components=[{"type": 1, "components": [button]}]
    )


@bot.answer("autocomplete.deploy", deadline="2s")
async def suggest_environments(event: Event) -> Answer:
    typed = next((option["value"] for option in event.json["data"]["options"] if option.get("focused")), "")
    return discord.choices([discord.Choice(name, name) for name in ENVIRONMENTS if name.startswith(typed)])


@bot.answer("component", deadline="2.5s", failed=discord.message("that did not work", ephemeral=True))
async def approve(event: Event) -> Answer:
    _, _, number = event.json["data"]["custom_id"].partition(":")
    user = event.json["member"]["user"]["id"]
    approved = await event.tx.fetchval(
        "UPDATE deploys SET approved_by = $1 WHERE number = $2 AND approved_by IS NULL RETURNING number",
        user,
        int(number) if number.isdecimal() else 0,
    )
    if approved is None:
        return discord.message("it is approved already, or unknown", ephemeral=True)
    return discord.update(f"deploy {approved}: approved", components=[])


if __name__ == "__main__":  # makes the tables; yours come from your own migrations
    import apsw

    apsw.Connection("answers.db").execute(TABLES)
