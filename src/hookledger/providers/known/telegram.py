"""Telegram: updates of a bot."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body, present
from ..schemes.token import Token

CONTRACTS = (
    Contract(
        name="telegram",
        title="Telegram",
        scheme=Token(header=b"x-telegram-bot-api-secret-token"),
        secret="the secret_token given to setWebhook: letters, digits, _ and -",
        id=body("update_id"),
        type=(
            present(
                "message",
                "edited_message",
                "channel_post",
                "edited_channel_post",
                "business_connection",
                "business_message",
                "edited_business_message",
                "deleted_business_messages",
                "message_reaction",
                "message_reaction_count",
                "inline_query",
                "chosen_inline_result",
                "callback_query",
                "shipping_query",
                "pre_checkout_query",
                "purchased_paid_media",
                "poll",
                "poll_answer",
                "my_chat_member",
                "chat_member",
                "chat_join_request",
                "chat_boost",
                "removed_chat_boost",
            ),
        ),
        object_id=(
            body("message.chat.id"),
            body("edited_message.chat.id"),
            body("channel_post.chat.id"),
            body("callback_query.message.chat.id"),
            body("my_chat_member.chat.id"),
            body("poll.id"),
        ),
        occurred_at=body("message.date"),
        answer=Answer(200, b""),  # Telegram would read a body as a Bot API call
        retries=Retries(automatic=True, hours=24, schedule="a reasonable number of attempts"),
        lister=Lister(list="getWebhookInfo counts what waits; getUpdates works only without a webhook"),
        confirmed=Confirmed(
            signature="code",
            event="code",
            response="code",
            retry="code",
            reconcile="memory",
            sources=("python-telegram-bot 22.8: the Bot API's descriptions",),
        ),
        notes=(
            "Use one source per bot: the ids of two bots overlap.",
            "After a week without updates the ids restart at random. A reused id has other content: it is "
            "quarantined as a conflict, for an operator to accept.",
            "Nothing is signed: the token proves the sender, not the content.",
        ),
    ),
)
