"""Words that are the same for the same trouble."""

import pytest

from hookledger.causes import MAX_CAUSE, cause_of


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("KeyError: 'cus_123'", "KeyError: …"),
        ("attempts exhausted (20): TimeoutError: no answer in 10 s", "TimeoutError: no answer in … s"),
        ("waited too long: invoice in_1Abc is open", "invoice … is open"),
        ("HTTPStatusError: status 503 for /v1/users/42", "HTTPStatusError: status 503 for /…/users/…"),
        ("S3Error: bucket \"a b\" is gone", "S3Error: bucket … is gone"),
        ("it can't be, it won't be", "it can't be, it won't be"),
        ("two\n  lines", "two lines"),
        ("", None),
        (None, None),
    ],
)
def test_what_differs_goes(reason: str | None, cause: str | None) -> None:  # proves R50
    assert cause_of(reason) == cause


def test_the_error_stands_for_a_reason() -> None:
    assert cause_of(None, "Traceback …\nValueError: 17 is odd\n") == "ValueError: … is odd"


def test_it_is_short() -> None:
    assert len(cause_of("very long " * 1000) or "") <= MAX_CAUSE
