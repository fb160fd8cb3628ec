"""Answers to Twilio: TwiML for calls and messages.

A few verbs, written safely, and `twiml` for the documents of the package `twilio`. Every function raises BadResult
for what Twilio's documentation does not allow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal
from xml.parsers import expat

from msgspec import Struct

from ..answer import Answer
from ..errors import BadResult
from .limits import one_of, text_of

MAX_SAY = 4_096
"""Characters of a Say."""
MAX_BODY = 1_600
"""Characters of a message."""
MAX_MEDIA = 10
MAX_DOCUMENT = 64 * 1024
"""Bytes that Twilio reads."""
_PROLOG = '<?xml version="1.0" encoding="UTF-8"?>'
_TYPE = {"content-type": "text/xml; charset=utf-8"}
_UNWRITABLE = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""What XML 1.0 cannot contain, even escaped."""
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"}
_IN_ATTRIBUTE = {**_ESCAPES, "\n": "&#10;", "\t": "&#9;"}

Method = Literal["GET", "POST"]
Input = Literal["dtmf", "speech", "dtmf speech"]


class Verb(Struct, frozen=True):
    """One verb of a TwiML document, made by the functions below."""

    name: str
    xml: str


def response(*verbs: Verb) -> Answer:
    """Return a TwiML document of these verbs. Without verbs nothing happens: a call ends, a message gets no reply."""
    inner = "".join(verb.xml for verb in _checked(verbs))
    return _answer(f"{_PROLOG}<Response>{inner}</Response>" if inner else f"{_PROLOG}<Response/>")


def twiml(document: object) -> Answer:
    """Return a TwiML document as text, or as a `VoiceResponse` or `MessagingResponse` of the package `twilio`."""
    text = document if isinstance(document, str) else str(document)
    _check_document(text)
    return _answer(text)


def say(text: str, *, voice: str | None = None, language: str | None = None, loop: int | None = None) -> Verb:
    """Return the verb that reads a text aloud; `loop=0` repeats it until the call ends."""
    return _verb("Say", text_of("the text of Say", text, MAX_SAY), voice=voice, language=language, loop=_count(loop))


def play(url: str, *, loop: int | None = None) -> Verb:
    """Return the verb that plays an audio file."""
    return _verb("Play", _url(url), loop=_count(loop))


def pause(seconds: int = 1) -> Verb:
    return _verb("Pause", length=_count(seconds))


def gather(
    *prompts: Verb,
    action: str | None = None,
    method: Method | None = None,
    accepts: Input | None = None,
    digits: int | None = None,
    timeout: int | None = None,
    finish_on_key: str | None = None,
    language: str | None = None,
    action_on_empty: bool | None = None,
) -> Verb:
    """Return the verb that collects digits or speech, and requests `action` with them. `prompts`: `say`, `play` and
    `pause`. `digits`: how many end it. `action_on_empty`: whether `action` is requested without input, too."""
    for prompt in _checked(prompts):
        one_of("a prompt of Gather", prompt.name, ("Say", "Play", "Pause"))
    return _verb(
        "Gather",
        "".join(prompt.xml for prompt in prompts),
        inner=True,
        action=None if action is None else _url(action),
        method=_method(method),
        input=accepts,
        numDigits=_count(digits, least=1),
        timeout=_count(timeout),
        finishOnKey=finish_on_key,
        language=language,
        actionOnEmptyResult=None if action_on_empty is None else str(action_on_empty).lower(),
    )


def message(body: str | None = None, *, media: Sequence[str] = ()) -> Verb:
    """Return the verb that replies to a message. `media`: URLs of what is attached."""
    if body is None and not media:
        raise BadResult("a message needs a body or media: to send nothing, answer response()")
    if isinstance(media, str) or len(media) > MAX_MEDIA:
        raise BadResult(f"media is a list of at most {MAX_MEDIA} URLs")
    parts = [] if body is None else [_element("Body", _text("Body", text_of("the body", body, MAX_BODY)))]
    parts += [_element("Media", _text("Media", _url(url))) for url in media]
    return _verb("Message", "".join(parts), inner=True)


def redirect(url: str, *, method: Method | None = None) -> Verb:
    """Return the verb that continues with the document at this URL."""
    return _verb("Redirect", _url(url), method=_method(method))


def hangup() -> Verb:
    """Return the verb that ends the call."""
    return _verb("Hangup")


def reject(reason: Literal["rejected", "busy"] | None = None) -> Verb:
    """Return the verb that declines an incoming call, which then costs nothing. It must be the first verb."""
    if reason is not None:
        one_of("the reason of Reject", reason, ("rejected", "busy"))
    return _verb("Reject", reason=reason)


def _answer(document: str) -> Answer:
    data = document.encode()
    if len(data) > MAX_DOCUMENT:
        raise BadResult(f"the document has {len(data):,} bytes, Twilio reads {MAX_DOCUMENT:,}: use redirect(…)")
    return Answer(data, headers=_TYPE)


def _checked(verbs: Sequence[object]) -> list[Verb]:
    for verb in verbs:
        if not isinstance(verb, Verb):
            raise BadResult(f"a document has verbs such as say(…), not {type(verb).__name__}")
    return [verb for verb in verbs if isinstance(verb, Verb)]


def _verb(name: str, text: str = "", *, inner: bool = False, **attributes: str | None) -> Verb:
    """`inner`: the text is XML already."""
    return Verb(name, _element(name, text if inner else _text(name, text), attributes))


def _element(name: str, inner: str, attributes: dict[str, str | None] | None = None) -> str:
    given = {key: value for key, value in (attributes or {}).items() if value is not None}
    written = "".join(f' {key}="{_text(key, value, _IN_ATTRIBUTE)}"' for key, value in given.items())
    return f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>"


def _text(what: str, text: str, escapes: dict[str, str] = _ESCAPES) -> str:
    if not isinstance(text, str):
        raise BadResult(f"{what} is text, not {type(text).__name__}")
    bad = _UNWRITABLE.search(text)
    if bad is not None:
        raise BadResult(f"{what} has the character U+{ord(bad[0]):04X}, which XML cannot contain: remove it")
    return "".join(escapes.get(letter, letter) for letter in text)


def _url(url: str) -> str:
    return text_of("a URL", url, 4_000)


def _method(method: object) -> str | None:
    if method is None:
        return None
    one_of("method", method, ("GET", "POST"))
    return str(method)


def _count(given: int | None, *, least: int = 0) -> str | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise BadResult(f"a number of {least} or more is needed, not {given!r:.60}")
    return str(given)


def _check_document(text: str) -> None:
    """Raise BadResult unless the text is well-formed, has the root Response and declares no entities."""
    names: list[str] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, _: names.append(name)
    parser.StartDoctypeDeclHandler = _no_doctype
    try:
        parser.Parse(text.encode(), True)
    except (expat.ExpatError, UnicodeEncodeError) as error:
        raise BadResult(f"the document is not well-formed XML: {error}") from None
    if names[0] != "Response":
        raise BadResult(f"a TwiML document is a Response, not {names[0]!r:.60}")


def _no_doctype(*_: object) -> None:
    raise BadResult("a TwiML document has no DOCTYPE: remove it")
