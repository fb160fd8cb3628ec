"""Every code that the intake refuses by has its words, and none is left that nobody uses."""

from __future__ import annotations

import re
from pathlib import Path

import hookledger
from hookledger.receive.reasons import NOT_A_DELIVERY, REASONS

SOURCE = Path(hookledger.__file__).parent
RAISED = re.compile(
    r"""(?:Malformed|Unauthentic|Forbidden|Rejected|NoKey|UnknownSource|WrongMethod|TooLarge|TooSlow|WrongEncoding)"""
    r"""\(f?"([a-z_{}]+)\""""
)
ROLES = re.compile(r"""(?:only|json_texts|form_value)\(.*"([a-z]+)"\)""")


def codes() -> set[str]:
    """Those written in the code; where a role is put in, for every role that is."""
    text = "\n".join(file.read_text() for room in ("receive", "providers") for file in (SOURCE / room).rglob("*.py"))
    roles = set(ROLES.findall(text)) | {"timestamp"}
    found: set[str] = set()
    for code in RAISED.findall(text):
        found |= {code.replace("{role}", role) for role in roles} if "{role}" in code else {code}
    return found


def test_every_code_has_words() -> None:
    used = codes()
    assert {"signature_mismatch", "certificate_url", "handshake_token", "type_rejected"} <= used
    assert used - set(REASONS) == set()


def test_no_words_without_a_code() -> None:
    text = "\n".join(file.read_text() for file in SOURCE.rglob("*.py") if file.name != "reasons.py")
    derived = {code for code in REASONS if code.endswith(("_missing", "_duplicate"))}
    assert [code for code in REASONS if f'"{code}"' not in text and code not in {NOT_A_DELIVERY, *derived}] == []
