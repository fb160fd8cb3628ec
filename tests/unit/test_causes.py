"""Words that are the same for the same failure, and for no other."""

import pytest

from hookledger.store.causes import MAX_CAUSE, cause_of, effect_cause, is_identifier, masked, masked_cause

WHERE = "shop.provision at shop/app.py:42"


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("KeyError: 'cus_123'", "KeyError: …"),
        ("KeyError: 'plan_v2'", "KeyError: 'plan_v2'"),
        ("attempts exhausted (3): a bug in shop/app.py:42: KeyError: 'plan_v2'", "KeyError: 'plan_v2'"),
        ("attempts exhausted (20): TimeoutError: no answer in 10 s", "TimeoutError: no answer in … s"),
        ("waited too long: invoice in_1Abc is open", "invoice … is open"),
        ("HTTPStatusError: status 503 for /v1/users/42", "HTTPStatusError: status 503 for /v1/users/…"),
        ('S3Error: bucket "a b" is gone', "S3Error: bucket … is gone"),
        ("it can't be, it won't be", "it can't be, it won't be"),
        ("result lost: hookledger resolve 0190f7a2 mail:ada --happened", "result lost: hookledger resolve …"),
        ("two\n  lines", "two lines"),
        ("a bell\x07 and \u202eleft", "a bell and left"),
        ("", None),
        (None, None),
    ],
)
def test_what_differs_goes(reason: str | None, cause: str | None) -> None:
    assert cause_of(reason) == cause
    assert cause_of(reason, where=WHERE) == (cause and f"{cause} in {WHERE}")


MERGE = [
    ("KeyError: '?'", "cus_9f3Kd02", "cus_NffrFeUfNV2Hib"),
    ("KeyError: '?'", "evt_1", "evt_2"),
    ("KeyError: '?'", "order1001", "order1002"),
    ("KeyError: '?'", "ada@example.test", "bob@example.test"),
    ("KeyError: '?'", "0190f7a2-7b3c-7e0e-8a9d-1c2b3a4d5e6f", "0190f7a2-7b3c-7e0e-8a9d-1c2b3a4d5e70"),
    ("KeyError: '?'", "01HZX3K9", "01HZX3KA"),
    ("KeyError: '?'", "x" * 41, "y" * 60),
    ("KeyError: ?", "17", "4"),
    ("ValueError: invalid literal for int() with base 10: '?'", "12,50", "7,1"),
    ("ValueError: Invalid isoformat string: '?'", "2026-11-16", "2026-11-17"),
    ('ValueError: no row for "?"', "Ada Lovelace", "Charles Babbage"),
    ("UniqueViolationError: Key (id)=(?) already exists.", "1001", "1002"),
    ("ConnectError: ('?', 5432)", "10.0.0.1", "10.0.0.2"),
    ("Refused: 429 after ? calls", "31", "7"),
    ("ValidationError: Expected `int`, got `str` - at `$.lines[?].amount`", "0", "17"),
    ("ValidationError: not an integer [type=int_type, input_value='?', input_type=str]", "many", "few"),
    ("TypeError: unexpected {'name': '?', 'plan': 'gold'}", "Ada", "Bob"),
    ("ValueError: no account for ?", "ada@example.test", "bob.b+news@mail.example.test"),
    ("UniqueViolationError: Key (email)=(?) already exists.", "ada@example.test", "bob@example.test"),
    ("SMTPRecipientsRefused: <?>: unknown", "ada@example.test", "bob@example.test"),
    ("OperationalError: cannot reach postgresql://?/shop", "ada:pw@db", "bob:secret@db"),
]
"""What two events with one failure say."""

SPLIT = [
    ("KeyError: '?'", "plan_v2", "customer"),
    ("KeyError: '?'", "plan_v2", "plan_v3"),
    ("KeyError: '?'", "address1", "address2"),
    ("AttributeError: 'NoneType' object has no attribute '?'", "id", "plan"),
    ("AttributeError: '?' object has no attribute 'id'", "Customer", "Order"),
    ("AttributeError: module 'shop' has no attribute '?'", "_plans", "__path__"),
    ("NameError: name '?' is not defined", "invoice", "order"),
    ("TypeError: provision() missing 1 required positional argument: '?'", "plan", "user"),
    ("TypeError: unsupported operand type(s) for +: 'int' and '?'", "str", "NoneType"),
    ('UndefinedTableError: relation "?" does not exist', "orders", "plans"),
    ('UndefinedColumnError: column "?" does not exist', "plan_v2", "plan_v3"),
    ("SQLError: no such table: ?", "orders_v1", "orders_v2"),
    ("ValidationError: Object missing required field `?`", "amount", "customer"),
    ("ValidationError: Expected `int`, got `str` - at `?`", "$.amount", "$.lines[...].amount"),
    ("HTTPStatusError: status ?", "503", "500"),
    ("?: 'plan'", "KeyError", "IndexError"),
]
"""What two different failures say."""


@pytest.mark.parametrize(("words", "one", "other"), MERGE)
def test_one_failure_has_one_cause(words: str, one: str, other: str) -> None:
    assert cause_of(words.replace("?", one), where=WHERE) == cause_of(words.replace("?", other), where=WHERE)


def test_no_address_is_kept() -> None:
    for words, one, _ in MERGE:
        cause = cause_of(words.replace("?", one), where=WHERE)
        assert cause is not None
        assert "@" not in cause
        assert "ada" not in cause
    assert cause_of("ValueError: no account for ada@example.test") == "ValueError: no account for …"
    assert cause_of("Key (email)=(ada@example.test) exists") == "Key (email)=(…) exists"


@pytest.mark.parametrize(("words", "one", "other"), SPLIT)
def test_two_failures_have_two_causes(words: str, one: str, other: str) -> None:
    assert cause_of(words.replace("?", one), where=WHERE) != cause_of(words.replace("?", other), where=WHERE)


@pytest.mark.parametrize("word", ["plan", "plan_v2", "_private", "__name__", "camelCase", "utf8", "EUR", "x" * 40])
def test_identifiers(word: str) -> None:
    assert is_identifier(word)


@pytest.mark.parametrize("word", ["", "_", "2fa", "cus_1", "cus_9f3", "order17", "a b", "a-b", "a.b", "x" * 41, "ï"])
def test_what_is_no_identifier(word: str) -> None:
    assert not is_identifier(word)


def test_each_error_has_a_reason() -> None:
    assert cause_of(None, "Traceback …\nValueError: 17 is odd\n") == "ValueError: … is odd"


def test_it_is_short_and_says_where() -> None:
    cause = cause_of("very long " * 1000, where=WHERE)
    assert cause is not None
    assert len(cause) <= MAX_CAUSE
    assert cause.endswith(WHERE)


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("KeyError: 'cus_1'", "KeyError: …"),
        ("a bug in shop/app.py:42: KeyError: 'cus_1'", "a bug in shop/app.py:42: KeyError: …"),
        ("attempts exhausted (3): ValueError: ada", "attempts exhausted (3): ValueError: …"),
        ("ada@example.test owes", "…"),
        ("TimeoutError", "TimeoutError"),
        ("a bug in what ada says: 1: x", "…"),
    ],
)
def test_viewers_see_no_words(reason: str, shown: str) -> None:
    assert masked(reason) == shown


@pytest.mark.parametrize(
    ("error", "cause", "shown"),
    [
        ("TimeoutError: no answer from 10.0.0.1", "TimeoutError: no answer from …", "TimeoutError: …"),
        ("ada is unknown", "ada is unknown", "…"),
        (None, "no answer", "…"),
    ],
)
def test_causes_of_effects(error: str | None, cause: str, shown: str) -> None:
    found = effect_cause("mail.receipt", "unknown", error)
    assert found == f"effect mail.receipt is unknown: {cause}"
    assert masked_cause(found, "mail.receipt") == f"effect mail.receipt is unknown: {shown}"
    assert len(effect_cause("n" * 255, "failed", "very long " * 100)) <= MAX_CAUSE


@pytest.mark.parametrize("words", ["KeyError: Lovelace", "Lovelace in Berlin at home:17"])
def test_viewers_see_where(words: str) -> None:
    cause = cause_of(words, where=WHERE)
    assert cause is not None
    assert "Lovelace" not in masked_cause(cause)
    assert masked_cause(cause).endswith(f" in {WHERE}")
    bare = cause_of(words)
    assert bare is not None
    assert "Lovelace" not in masked_cause(bare)
