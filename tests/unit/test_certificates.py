"""PayPal and SNS: a certificate is fetched only from where it may be, and believed only for what it may sign."""

from __future__ import annotations

import json

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from hookledger.errors import ConfigError
from hookledger.providers.fields import Constant, body, header, present
from hookledger.providers.schemes.base import KeyNeeded
from hookledger.providers.schemes.certificate import TEST_URL, Certificate

from . import published as p

PINNED = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-" + "0a" * 16 + ".pem"


@pytest.mark.parametrize(
    "url",
    [
        PINNED.replace("https", "http"),
        PINNED.replace("https", "HTTPS"),
        PINNED.replace("https://", "https://user@"),
        PINNED.replace("https://", "https://evil.example\\@"),
        PINNED.replace(".com/", ".com:443/"),
        PINNED.replace(".com/", ".com./"),
        PINNED.replace(".com/", ".com.evil.example/"),
        PINNED.replace(".com/", ".com.cn.evil.example/"),
        PINNED.replace("sns.us-east-1", "sns.s3"),  # the bucket `sns` of whoever has it
        PINNED.replace("sns.us-east-1", "sns.s3-us-west-2"),
        PINNED.replace("sns.us-east-1", "sns-us-east-1"),
        PINNED.replace("sns.us-east-1", "sns-signing.s3"),
        PINNED.replace("sns.us-east-1", "sns-signing"),
        PINNED.replace("sns.us-east-1", "sns-signing-evil.us-east-1"),
        PINNED.replace("sns.us-east-1", "evil-sns-signing.us-east-1"),
        PINNED.replace("sns.us-east-1", "evil.sns.us-east-1"),
        PINNED.replace("sns.us-east-1", "snsXus-east-1"),
        PINNED.replace("amazonaws.com", "amazonawsXcom"),
        PINNED.replace("amazonaws.com", "amazonaws.com.cn"),  # no region of China
        PINNED.replace("amazonaws.com", "amazonaws.eu"),
        PINNED.replace("amazonaws.com", "amazonaws.eu.evil.example"),
        PINNED.replace("us-east-1.amazonaws.com", "eusc-de-east-1.amazonaws.com"),
        PINNED.replace("us-east-1.amazonaws.com", "eusc-de-east-1.amazonaws.eu.com"),
        PINNED.replace("us-east-1.amazonaws.com", "cn-north-1.amazonaws.com"),
        PINNED.replace("us-east-1.amazonaws.com", "cn-north-1.amazonaws.com.cn.com"),
        PINNED.replace("us-east-1", "us-gov-west-1-evil"),
        PINNED.replace("sns.us-east-1", "sns.us-east-1.evil"),
        PINNED.replace("sns.", "SNS."),
        PINNED.replace("amazonaws.com", "amazonaws.evil.com"),
        PINNED + "?x=1",
        PINNED + "#x",
        PINNED + "\n",
        PINNED + "\0",
        PINNED + "/",
        " " + PINNED,
        PINNED.replace(".com/", ".com/x/../"),
        PINNED.replace(".com/", ".com//"),
        PINNED.replace("Simple", "%53imple"),
        PINNED.replace("0a0a", "0A0A"),
        PINNED.replace("0a0a", "0a0"),
        PINNED.replace(".pem", ".key"),
        PINNED.replace("amazonaws", "аmazonaws"),
        "https://sns.us-east-1.amazonaws.com/",
        "https://",
        "file:///etc/passwd",
        TEST_URL,
        PINNED + "a" * 600,
    ],
)
def test_certificate_addresses(url: str) -> None:
    case, ring = p.cases()["sns"], p.cases()["sns"].ring()
    assert (
        p.refused(case.scheme, case.key, p.sns({**p.sns_fields(), "SigningCertURL": url}), ring) == "certificate_url"
    )
    assert not ring.asked
    paypal = Certificate(kind="paypal", host=p.SNS.host, path=p.SNS.path)
    request = p.with_header(p.paypal(), b"paypal-cert-url", url.encode())
    assert p.refused(paypal, case.key, request, ring) == "certificate_url"
    assert not ring.asked


@pytest.mark.parametrize(
    "host",
    [
        "sns.cn-north-1.amazonaws.com.cn",
        "sns.us-gov-west-1.amazonaws.com",
        "sns.eu-west-3.amazonaws.com",
        "sns.eusc-de-east-1.amazonaws.eu",
        "sns-signing.af-south-1.amazonaws.com",
        "sns-signing.eusc-de-east-1.amazonaws.eu",
    ],
)
def test_certificate_regions(host: str) -> None:
    address = p.SNS_CERT.replace("sns.us-east-1.amazonaws.com", host)
    request = p.sns({**p.sns_fields(), "SigningCertURL": address})
    case = p.cases()["sns"]
    with pytest.raises(KeyNeeded) as needed:
        p.judge(case.scheme, case.key, request, p.Ring({}))
    assert needed.value.where.url == address and not needed.value.again


NAMED = {
    "sns.amazonaws.com": "us-east-1",
    "sns-signing.af-south-1.amazonaws.com": "af-south-1",
    "sns-us-gov-west-1.amazonaws.com": "us-gov-east-1",
    "sns-cn-north-1.amazonaws.com.cn": "cn-north-1",
    "sns-cn-northwest-1.amazonaws.com.cn": "cn-northwest-1",
    "sns-signing.eusc-de-east-1.amazonaws.eu": "eusc-de-east-1",
}
"""The names of the certificates of some regions, as Amazon's SDK for Java knows them."""


@pytest.mark.parametrize("name", NAMED)
def test_certificates_are_named_by_their_region(name: str) -> None:
    case = p.cases()["sns"]
    [(url, _)] = case.published.items()
    assert p.judge(case.scheme, case.key, case.request, p.Ring({url: p.certificate(name)})) == p.NOW


@pytest.mark.parametrize(
    "name",
    [
        "sns-signing.amazonaws.com.evil.example",
        "evil.sns-signing.af-south-1.amazonaws.com",
        "sns-evil.amazonaws.com",
        "sns-us-gov-west-1.amazonaws.com.evil.example",
        "sns-us-gov-west-1.evil.amazonaws.com",
        "sns-cn-north-1.amazonaws.com",
        "sns.s3.amazonaws.com",
        "sns-signing.s3.amazonaws.com",
        "bucket.s3.amazonaws.com",
        "amazonaws.com",
        "*.amazonaws.com",
    ],
)
def test_certificates_of_others_are_refused(name: str) -> None:
    case = p.cases()["sns"]
    [(url, _)] = case.published.items()
    ring = p.Ring({url: p.certificate(name)})
    assert p.refused(case.scheme, case.key, case.request, ring) == "certificate_invalid"


def test_paypal_details() -> None:
    for value in ("SHA1withRSA", "sha256withrsa", "none", "SHA512withRSA"):
        assert p.refusal("paypal", p.paypal(paypal_auth_algo=value)) == "algorithm_mismatch"
    for changed, reason in (
        ({"paypal_transmission_id": "tx|1"}, "id_malformed"),
        ({"paypal_transmission_id": "tx-2"}, "signature_mismatch"),
        ({"paypal_transmission_time": "2023-11-14|22:13:20Z"}, "timestamp_malformed"),
        ({"paypal_transmission_time": "2023-11-14T22:13:21Z"}, "signature_mismatch"),
        ({"paypal_transmission_sig": "AAAA"}, "signature_malformed"),
        ({"paypal_transmission_sig": "!"}, "signature_malformed"),
        ({"paypal_transmission_sig": "A" * 2000}, "signature_malformed"),
    ):
        assert p.refusal("paypal", p.paypal(**changed)) == reason
    scheme = p.PAYPAL
    assert scheme.coverage == "checksum"
    assert scheme.signs(header("paypal-transmission-id")) and not scheme.signs(body("id"))
    assert scheme.signs(Constant("x")) and not scheme.signs(present("id"))
    for secret in ("", "a|b|c|d|e", "short", "x" * 65):
        with pytest.raises(ValueError, match="webhook id"):
            scheme.prepare(secret)


@pytest.mark.parametrize("name", ["paypal", "sns"])
def test_certificates_themselves(name: str) -> None:
    case = p.cases()[name]
    [(url, _)] = case.published.items()
    subject = "messageverificationcerts.paypal.com" if name == "paypal" else "sns.amazonaws.com"
    good = p.certificate(subject)
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    for content, reason in (
        (p.certificate(subject, days=(-30, -1)), "certificate_expired"),
        (p.certificate(subject, days=(1, 30)), "certificate_expired"),
        (p.certificate("evil.example"), "certificate_invalid"),
        (p.certificate(subject + ".evil.example"), "certificate_invalid"),
        (p.certificate(subject, issuer=subject, signer=p.rsa_key()), "certificate_invalid"),
        (p.certificate(subject, p.ec_key()), "certificate_invalid"),
        (p.certificate(subject, weak), "certificate_invalid"),
        (b"<xml>" + good + b"</xml>", "certificate_invalid"),
        (good[:400], "certificate_invalid"),
        (b"", "certificate_invalid"),
        (b"test key", "certificate_invalid"),
        (p.spki(p.rsa_key(), Encoding.PEM), "certificate_invalid"),
    ):
        assert p.refused(case.scheme, case.key, case.request, p.Ring({url: content})) == reason


def test_sns_details() -> None:
    case = p.cases()["sns"]
    assert p.judge(p.SNS, case.key, p.sns(p.sns_fields(version="1")), case.ring()) == p.NOW
    only_2 = msgspec.structs.replace(p.SNS, versions=("2",))
    assert p.refused(only_2, case.key, p.sns(p.sns_fields(version="1")), case.ring()) == "signature_version"
    for version in ("3", "", "01", "2 "):
        reason = p.refusal("sns", p.sns({**p.sns_fields(), "SignatureVersion": version}))
        assert reason == ("signature_version" if version else "signature_missing")
    # One version's signature is nothing in the other.
    assert p.refusal("sns", p.sns({**p.sns_fields(version="1"), "SignatureVersion": "2"})) == "signature_mismatch"
    confirmation = p.sns_fields(Type="SubscriptionConfirmation", Token="t", SubscribeURL="https://x", Subject=None)
    assert p.judge(p.SNS, case.key, p.sns(confirmation), case.ring()) == p.NOW
    plain = p.sns_fields(Subject=None)
    assert p.judge(p.SNS, case.key, p.sns(plain), case.ring()) == p.NOW
    assert p.refusal("sns", p.sns({**plain, "Subject": "added"})) == "signature_mismatch"
    for field in ("SubscribeURL", "Token"):  # of a confirmation, so unsigned here
        assert p.refusal("sns", p.sns({**p.sns_fields(), field: "https://evil.example"})) == "body_malformed"
    for field in ("MessageId", "Message", "Timestamp", "TopicArn"):
        for value in json.loads("[null, 1, [], {}]"):
            assert p.refusal("sns", p.sns({**p.sns_fields(), field: value})) == "body_malformed"
    assert p.refusal("sns", p.sns({**p.sns_fields(), "Type": "Other"})) == "signature_missing"
    assert p.SNS.signs(body("MessageId")) and p.SNS.signs(body("Message"))
    assert not p.SNS.signs(body("MessageAttributes.colour")) and not p.SNS.signs(header("x-amz-sns-message-id"))
    for secret in ("arn:aws:sqs:us-east-1:123456789012:q", "arn:aws:sns:us-east-1:1:t", "*", p.TOPIC + "\nx"):
        with pytest.raises(ValueError, match="ARN"):
            p.SNS.prepare(secret)


def test_sns_read_in_two_ways() -> None:
    good = p.sns().body
    for twice in (b'{"Message": "evil", ', b'{"\\u004dessage": "evil", ', b'{"Extra": 1, "Extra": 2, '):
        assert p.refusal("sns", p.request(twice + good[1:], [])) == "body_malformed"
    # Nothing is escaped in what is signed: a message that imitates the fields after it must not become them.
    imitation = p.sns_fields(Message="hello\nMessageId\nforged\nSubject\nx", Subject=None)
    case = p.cases()["sns"]
    assert p.judge(p.SNS, case.key, p.sns(imitation), case.ring()) == p.NOW
    split = {
        **imitation,
        "Message": "hello",
        "MessageId": "forged",
        "Subject": "x\nMessageId\n" + imitation["MessageId"],
    }
    assert p.refusal("sns", p.sns(split)) == "body_malformed"


def test_certificate_settings() -> None:
    with pytest.raises(ConfigError, match="regular expression"):
        Certificate(kind="sns", host="(", path="/")
    with pytest.raises(ConfigError, match="needs host, path"):
        Certificate(kind="sns", host="", path="/")
