"""Signatures that providers publish, whole: input, secret, signature, and where each was read.

None is computed here; the test recomputes all of them. `signed` is spelled out rather than derived, so that a
vector also says what its provider signs.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tests.oracles.delivery import Delivery

HOOK = "https://hooks.example.com/in/vector"


class Vector(Struct, frozen=True, kw_only=True):
    provider: str
    source: str
    secret: str
    """For the signatures with a key pair: the public half."""
    body: bytes
    signed: bytes
    signature: str
    """As published, without what stands before it in the header."""
    headers: dict[str, str]
    algorithm: Literal["hmac-sha1", "hmac-sha256", "sha256", "ed25519", "ecdsa-p256"] = "hmac-sha256"
    key: Literal["utf8", "hex", "base64", "sha1"] = "utf8"
    encoding: Literal["hex", "base64"] = "hex"
    at: float = 0.0
    """A moment at which the delivery is fresh."""
    url: str = HOOK
    method: str = "POST"

    @property
    def delivery(self) -> Delivery:
        return Delivery(self.method, self.url, self.headers, self.body)


FORM = "application/x-www-form-urlencoded"

_SLACK = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)

_TWILIO_URL = "https://mycompany.com/myapp.php?foo=1&bar=2"
_TWILIO_FORM = b"CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309&To=%2B18005551212"
_TWILIO_FIELDS = "CallSidCA1234567890ABCDECaller+14158675309Digits1234From+14158675309To+18005551212"
_TWILIO_BODY = b'{"property": "value", "boolean": true}'
_TWILIO_BODY_URL = f"{_TWILIO_URL}&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"


def _twilio(
    signature: str,
    *,
    url: str = _TWILIO_URL,
    signed_url: str | None = None,
    body: bytes = _TWILIO_FORM,
    fields: str = _TWILIO_FIELDS,
    source: str,
) -> Vector:
    return Vector(
        provider="twilio",
        source=source,
        secret="12345",
        url=url,
        body=body,
        signed=((signed_url or url) + fields).encode(),
        signature=signature,
        headers={"X-Twilio-Signature": signature, "Content-Type": FORM if fields else "application/json"},
        algorithm="hmac-sha1",
        encoding="base64",
    )


_STANDARD_BODY = b'{"test": 2432232314}'
_STANDARD_SIGNED = b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330." + _STANDARD_BODY
_STANDARD_HEADERS = {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330"}

_SVIX_BODY = b'{"event_type":"ping","data":{"success":true}}'

_OPENAI_BODY = (
    b'{"id": "evt_685c059ae3a481909bdc86819b066fb6", "object": "event", "created_at": 1750861210, '
    b'"type": "response.completed", "data": {"id": "resp_123"}}'
)

_ADYEN_KEY = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056"
_ADYEN_CLASSIC = (
    b'{"live":"false","notificationItems":[{"NotificationRequestItem":{'
    b'"additionalData":{"hmacSignature":"coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0="},'
    b'"amount":{"value":1130,"currency":"EUR"},"pspReference":"7914073381342284","eventCode":"AUTHORISATION",'
    b'"eventDate":"2019-05-06T17:15:34.121+02:00","merchantAccountCode":"TestMerchant",'
    b'"operations":["CANCEL","CAPTURE","REFUND"],"merchantReference":"TestPayment-1407325143704",'
    b'"paymentMethod":"visa","success":"true"}}]}'
)
_ADYEN_BODY = b"""{
    "type": "merchant.created",
    "environment": "test",
    "createdAt": "01-01-2024",
    "data": {
        "capabilities": {
            "sendToTransferInstrument": {
                "requested": true,
                "requestedLevel": "notApplicable"
            }
        },
        "companyId": "YOUR_COMPANY_ID",
        "merchantId": "YOUR_MERCHANT_ACCOUNT",
        "status": "PreActive"
    }
}"""

_SQUARE_BODY = (
    b'{"merchant_id":"MLEFBHHSJGVHD","type":"webhooks.test_notification",'
    b'"event_id":"ac3ac95b-f97d-458c-a6e6-18981597e05f","created_at":"2022-07-13T20:30:59.037339943Z",'
    b'"data":{"type":"webhooks","id":"bc368e64-01aa-407e-b46e-3231809b1129"}}'
)
_SQUARE_URL = "https://webhook.site/679a4f3a-dcfa-49ee-bac5-9d0edad886b9"
_SQUARE_ESCAPED = b'{"data":{"type":"webhooks","id":">id<"}}'

_COINBASE_BODY = (
    b'{"id":1,"scheduled_for":"2017-01-31T20:50:02Z","attempt_number":1,"event":{'
    b'"id":"24934862-d980-46cb-9402-43c81b0cdba6","type":"charge:created","api_version":"2018-03-22",'
    b'"created_at":"2017-01-31T20:49:02Z","data":{"code":"66BEOV2A","name":"The Sovereign Individual",'
    b'"description":"Mastering the Transition to the Information Age",'
    b'"hosted_url":"https://commerce.coinbase.com/charges/66BEOV2A","created_at":"2017-01-31T20:49:02Z",'
    b'"expires_at":"2017-01-31T21:04:02Z","timeline":[{"time":"2017-01-31T20:49:02Z","status":"NEW"}],'
    b'"metadata":{},"pricing_type":"no_price","payments":[],"addresses":{'
    b'"bitcoin":"0000000000000000000000000000000000","ethereum":"0x0000000000000000000000000000000000000000",'
    b'"litecoin":"3000000000000000000000000000000000",'
    b'"bitcoincash":"bitcoincash:000000000000000000000000000000000000000000"}}}}'
)

_GOCARDLESS_BODY = (
    b'{"events":[{"id":"EV00BD05S5VM2T","created_at":"2018-07-05T09:13:51.404Z","resource_type":"subscriptions",'
    b'"action":"created","links":{"subscription":"SB0003JJQ2MR06"},"details":{"origin":"api",'
    b'"cause":"subscription_created","description":"Subscription created via the API."},"metadata":{}},'
    b'{"id":"EV00BD05TB8K63","created_at":"2018-07-05T09:13:56.893Z","resource_type":"mandates",'
    b'"action":"created","links":{"mandate":"MD000AMA19XGEC"},"details":{"origin":"api",'
    b'"cause":"mandate_created","description":"Mandate created via the API."},"metadata":{}}]}'
)

_HUBSPOT_SECRET = "yyyyyyyy-yyyy-yyyy-yyyy-yyyyyyyyyyyy"
_HUBSPOT_BODY = b"{'example_field':'example_value'}"
_HUBSPOT_URL = "https://www.example.com/webhook_uri"
_HUBSPOT_TESTS = "HubSpot/hubspot-api-python tests/spec/utils/test_signature.py"

_RAZORPAY_BODY = b"""{
  "event": "payment.authorized",
  "entity": "event",
  "contains": [
    "payment"
  ],
  "payload": {
    "payment": {
      "entity": {
        "id": "pay_6koWN7bvxujzxM",
        "entity": "payment",
        "amount": 1000000,
        "currency": "INR",
        "status": "captured",
        "order_id": "order_100000000order",
        "international": false,
        "method": "card",
        "amount_refunded": 0,
        "refund_status": null,
        "captured": true,
        "description": "random description",
        "card_id": "card_6koWNAT6LASUqy",
        "bank": null,
        "wallet": null,
        "vpa": null,
        "email": "a@b.com",
        "contact": "+919999999999",
        "notes": {
          "merchant_order_id": "random order id"
        },
        "fee": 23000,
        "service_tax": 3000,
        "error_code": null,
        "error_description": null,
        "created_at": 1479978483
      }
    }
  },
  "created_at": 1400826760
}
"""

_SENDGRID_BODY = (
    b'[{"email":"hello@world.com","event":"dropped","reason":"Bounced Address",'
    b'"sg_event_id":"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA",'
    b'"sg_message_id":"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0",'
    b'"smtp-id":"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>","timestamp":1600112492}]\r\n'
)
_SENDGRID_SIGNATURE = (
    "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM="
)

_RECURLY_BODY = (
    b'{"id":"rjxwmwedwqug","object_type":"account","site_id":"qc326l1hl8k9","event_type":"created",'
    b'"event_time":"2022-09-13T21:18:40Z","account_code":"adfas23zzz14123"}'
)

VECTORS: tuple[Vector, ...] = (
    Vector(
        provider="github",
        source="docs.github.com, Validating webhook deliveries, as public repositories quote it",
        secret="It's a Secret to Everybody",
        body=b"Hello, World!",
        signed=b"Hello, World!",
        signature="757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        headers={"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
    ),
    Vector(
        provider="jira",
        source="developer.atlassian.com, Jira Cloud webhooks, as public repositories quote it",
        secret="It's a Secret to Everybody",
        body=b"Hello World!",
        signed=b"Hello World!",
        signature="a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9",
        headers={"X-Hub-Signature": "sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9"},
    ),
    Vector(
        provider="slack_events",
        source="docs.slack.dev, Verifying requests from Slack, as public repositories quote it",
        secret="8f742231b10e8888abcd99yyyzzz85a5",
        body=_SLACK,
        signed=b"v0:1531420618:" + _SLACK,
        signature="a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        headers={
            "X-Slack-Request-Timestamp": "1531420618",
            "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
            "Content-Type": FORM,
        },
        at=1531420618,
    ),
    _twilio(
        "RSOYDt4T1cUTdK1PDd93/VVr8B8=",
        source="twilio/twilio-python test suite; the same in Twilio's documentation, as public repositories quote it",
    ),
    _twilio(
        "IK+Dwps556ElfBT0I3Rgjkr1wJU=",
        body=b"Sid=CA123&SidAccount=AC123&Digits=5678&Digits=1234&Digits=1234",
        fields="Digits1234Digits5678SidCA123SidAccountAC123",
        source="twilio/twilio-python test suite, repeated fields",
    ),
    _twilio(
        "kvajT1Ptam85bY51eRf/AJRuM3w=",
        signed_url=_TWILIO_URL.replace(".com", ".com:443"),
        source="twilio/twilio-python test suite, port added on https",
    ),
    _twilio(
        "0ZXoZLH/DfblKGATFgpif+LLRf4=",
        url=_TWILIO_URL.replace("https", "http"),
        signed_url=_TWILIO_URL.replace("https", "http").replace(".com", ".com:80"),
        source="twilio/twilio-python test suite, port added on http",
    ),
    _twilio(
        "g9IN/x4Cft2g517EjYvEvM/W7LU=",
        url=_TWILIO_URL.replace("mycompany", "MyCompany"),
        source="twilio/twilio-csharp test suite, mixed case in the host",
    ),
    _twilio(
        "a9nBmqA0ju/hNViExpshrM61xv4=",
        url=_TWILIO_BODY_URL,
        body=_TWILIO_BODY,
        fields="",
        source="twilio/twilio-python test suite, JSON bound by bodySHA256",
    ),
    Vector(
        provider="svix",
        source="docs.svix.com, Verifying payloads manually, as public repositories quote it",
        secret="whsec_plJ3nmyCDGBKInavdOK15jsl",
        body=_SVIX_BODY,
        signed=b"msg_loFOjxBNrRLzqYUf.1731705121." + _SVIX_BODY,
        signature="rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
        headers={
            "svix-id": "msg_loFOjxBNrRLzqYUf",
            "svix-timestamp": "1731705121",
            "svix-signature": "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
        },
        key="base64",
        encoding="base64",
        at=1731705121,
    ),
    Vector(
        provider="standard_webhooks",
        source="standard-webhooks/standard-webhooks library test suites, as public repositories quote it",
        secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        body=_STANDARD_BODY,
        signed=_STANDARD_SIGNED,
        signature="g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        headers=_STANDARD_HEADERS | {"webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
        key="base64",
        encoding="base64",
        at=1614265330,
    ),
    Vector(
        provider="standard_webhooks_v1a",
        source="svix/svix-webhooks server test suite, test_asymmetric_key_signing",
        secret="whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=",
        body=_STANDARD_BODY,
        signed=_STANDARD_SIGNED,
        signature=("hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="),
        headers=_STANDARD_HEADERS
        | {
            "webhook-signature": "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl"
            "8EM+m7TBAg=="
        },
        algorithm="ed25519",
        key="base64",
        encoding="base64",
        at=1614265330,
    ),
    Vector(
        provider="openai",
        source="openai/openai-python test suite, tests/lib/test_webhooks.py",
        secret="whsec_RdvaYFYUXuIFuEbvZHwMfYFhUf7aMYjYcmM24+Aj40c=",
        body=_OPENAI_BODY,
        signed=b"wh_685c059ae39c8190af8c71ed1022a24d.1750861210." + _OPENAI_BODY,
        signature="gUAg4R2hWouRZqRQG4uJypNS8YK885G838+EHb4nKBY=",
        headers={
            "webhook-id": "wh_685c059ae39c8190af8c71ed1022a24d",
            "webhook-timestamp": "1750861210",
            "webhook-signature": "v1,gUAg4R2hWouRZqRQG4uJypNS8YK885G838+EHb4nKBY=",
        },
        key="base64",
        encoding="base64",
        at=1750861210,
    ),
    Vector(
        provider="adyen_classic",
        source="Adyen/adyen-python-api-library test suite, test_notification_request_item_hmac",
        secret=_ADYEN_KEY,
        body=_ADYEN_CLASSIC,
        signed=b"7914073381342284::TestMerchant:TestPayment-1407325143704:1130:EUR:AUTHORISATION:true",
        signature="coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0=",
        headers={},
        key="hex",
        encoding="base64",
    ),
    Vector(
        provider="adyen",
        source="Adyen/adyen-python-api-library test suite, test_is_valid_hmac_payload",
        secret=_ADYEN_KEY,
        body=_ADYEN_BODY,
        signed=_ADYEN_BODY,
        signature="NiqA5vsdV5etZMOaR27+GBSG4i6JeP6j1wkCM6t53vA=",
        headers={"HmacSignature": "NiqA5vsdV5etZMOaR27+GBSG4i6JeP6j1wkCM6t53vA="},
        key="hex",
        encoding="base64",
    ),
    Vector(
        provider="dropbox",
        source="christophercliff/hapi-dropbox-webhooks test suite (third party)",
        secret="the_secret",
        body=b'{"delta": {"users": [12345]}}',
        signed=b'{"delta": {"users": [12345]}}',
        signature="0a8c16b085420b960dc78664279fe09e936a2a01b1f91064869d9e77dfd64529",
        headers={"X-Dropbox-Signature": "0a8c16b085420b960dc78664279fe09e936a2a01b1f91064869d9e77dfd64529"},
    ),
    Vector(
        provider="square",
        source="square/square-python-sdk tests/integration/test_webhooks_helper.py",
        secret="Ibxx_5AKakO-3qeNVR61Dw",
        url=_SQUARE_URL,
        body=_SQUARE_BODY,
        signed=_SQUARE_URL.encode() + _SQUARE_BODY,
        signature="GF4YkrJgGBDZ9NIYbNXBnMzqb2HoL4RW/S6vkZ9/2N4=",
        headers={"x-square-hmacsha256-signature": "GF4YkrJgGBDZ9NIYbNXBnMzqb2HoL4RW/S6vkZ9/2N4="},
        encoding="base64",
    ),
    Vector(
        provider="square",
        source="square/square-python-sdk tests/integration/test_webhooks_helper.py, angle brackets",
        secret="signature-key",
        url="https://webhook.site/webhooks",
        body=_SQUARE_ESCAPED,
        signed=b"https://webhook.site/webhooks" + _SQUARE_ESCAPED,
        signature="Cxt7+aTi4rKgcA0bC4g9EHdVtLSDWdqccmL5MvihU4U=",
        headers={"x-square-hmacsha256-signature": "Cxt7+aTi4rKgcA0bC4g9EHdVtLSDWdqccmL5MvihU4U="},
        encoding="base64",
    ),
    Vector(
        provider="line",
        source="line/line-bot-sdk-python tests/test_signature.py",
        secret="channel_secret",
        body=b"bodybodybodybody",
        signed=b"bodybodybodybody",
        signature="/gg9a+LvFevTH1sd7XCQycD7tsWclCsInj7MhBHxN7k=",
        headers={"x-line-signature": "/gg9a+LvFevTH1sd7XCQycD7tsWclCsInj7MhBHxN7k="},
        encoding="base64",
    ),
    Vector(
        provider="paddle",
        source="PaddleHQ/paddle-python-sdk tests/Unit/Notification/test_Verifier.py",
        secret="pdl_ntf_01hbpjmytsa32fhr36nqgc3kgb_WvRO0eL4Bj9rgYYIBZY6wZhG4EHy9jzh",
        body=b"hello-world",
        signed=b"1696195954:hello-world",
        signature="d96299976a6eb066f484d7fde011ac56fc32b38fc9940bc419d6e537fdc6ef02",
        headers={
            "Paddle-Signature": "ts=1696195954;h1=dummy;"
            "h1=d96299976a6eb066f484d7fde011ac56fc32b38fc9940bc419d6e537fdc6ef02"
        },
        at=1696195954,
    ),
    Vector(
        provider="coinbase_commerce",
        source="coinbase/coinbase-commerce-python tests/test_webhook.py",
        secret="30291a20-0bd1-4267-9b0f-e6e7b123c0bf",
        body=_COINBASE_BODY,
        signed=_COINBASE_BODY,
        signature="8be7742c7d372f08a6a3224edadf18a22b65fa9e28f3f2de97376cdaa092590d",
        headers={"X-CC-Webhook-Signature": "8be7742c7d372f08a6a3224edadf18a22b65fa9e28f3f2de97376cdaa092590d"},
    ),
    Vector(
        provider="coinbase_cdp",
        source="hook0/hook0 client test suite, verifying_valid_signature_v1 (Coinbase sends through Hook0)",
        secret="secret",
        body=b"hello !",
        signed=b"1636936200.x-test x-test2.val1.val2.hello !",
        signature="493c35f05443fdb74cb99fd4f00e0e7653c2ab6b24fbc97f4a7bd4d56b31758a",
        headers={
            "X-Hook0-Signature": "t=1636936200,h=x-test x-test2,"
            "v1=493c35f05443fdb74cb99fd4f00e0e7653c2ab6b24fbc97f4a7bd4d56b31758a",
            "x-test": "val1",
            "x-test2": "val2",
        },
        at=1636936200,
    ),
    Vector(
        provider="coinbase_cdp",
        source="hook0/hook0 server test suite, create_signature_v1 (Coinbase sends through Hook0)",
        secret="secret",
        body=b"hello !",
        signed=(
            b"1636936200.x-event-id x-event-type.1a01cb48-5142-4d9b-8f90-d20cca61f0ee.service.resource.verb.hello !"
        ),
        signature="bc521546ba5de381b12f135782d2008b028c3065c191760b12b76850a8fc8f51",
        headers={
            "X-Hook0-Signature": "t=1636936200,h=x-event-id x-event-type,"
            "v1=bc521546ba5de381b12f135782d2008b028c3065c191760b12b76850a8fc8f51",
            "X-Event-Id": "1a01cb48-5142-4d9b-8f90-d20cca61f0ee",
            "X-EVENT-TYPE": "service.resource.verb",
        },
        at=1636936200,
    ),
    Vector(
        provider="gocardless",
        source="gocardless/gocardless-pro-python tests/webhooks_test.py",
        secret="ED7D658C-D8EB-4941-948B-3973214F2D49",
        body=_GOCARDLESS_BODY,
        signed=_GOCARDLESS_BODY,
        signature="2693754819d3e32d7e8fcb13c729631f316c6de8dc1cf634d6527f1c07276e7e",
        headers={"Webhook-Signature": "2693754819d3e32d7e8fcb13c729631f316c6de8dc1cf634d6527f1c07276e7e"},
    ),
    Vector(
        provider="hubspot_v1",
        source=_HUBSPOT_TESTS,
        secret=_HUBSPOT_SECRET,
        body=_HUBSPOT_BODY,
        signed=_HUBSPOT_SECRET.encode() + _HUBSPOT_BODY,
        signature="69fc6631a867edd4f9e9e627fc5c1148e3fbdd8b21837b6d2b8901c1fa57f750",
        headers={
            "X-HubSpot-Signature": "69fc6631a867edd4f9e9e627fc5c1148e3fbdd8b21837b6d2b8901c1fa57f750",
            "X-HubSpot-Signature-Version": "v1",
        },
        algorithm="sha256",
    ),
    Vector(
        provider="hubspot_v2",
        source=_HUBSPOT_TESTS,
        secret=_HUBSPOT_SECRET,
        url=_HUBSPOT_URL,
        body=_HUBSPOT_BODY,
        signed=f"{_HUBSPOT_SECRET}POST{_HUBSPOT_URL}".encode() + _HUBSPOT_BODY,
        signature="4fe4e3a7d3cf09db53be39d0a58130e2aaba074ec123a9e355b876a689a1c383",
        headers={
            "X-HubSpot-Signature": "4fe4e3a7d3cf09db53be39d0a58130e2aaba074ec123a9e355b876a689a1c383",
            "X-HubSpot-Signature-Version": "v2",
        },
        algorithm="sha256",
    ),
    Vector(
        provider="hubspot_v2",
        source=f"{_HUBSPOT_TESTS}, GET without a body",
        secret=_HUBSPOT_SECRET,
        url=_HUBSPOT_URL,
        method="GET",
        body=b"",
        signed=f"{_HUBSPOT_SECRET}GET{_HUBSPOT_URL}".encode(),
        signature="eee2dddcc73c94d699f5e395f4b9d454a069a6855fbfa152e91e88823087200e",
        headers={
            "X-HubSpot-Signature": "eee2dddcc73c94d699f5e395f4b9d454a069a6855fbfa152e91e88823087200e",
            "X-HubSpot-Signature-Version": "v2",
        },
        algorithm="sha256",
    ),
    Vector(
        provider="hubspot",
        source=_HUBSPOT_TESTS,
        secret=_HUBSPOT_SECRET,
        url=_HUBSPOT_URL,
        body=_HUBSPOT_BODY,
        signed=f"POST{_HUBSPOT_URL}".encode() + _HUBSPOT_BODY + b"15000000",
        signature="HPW73RUtKmcYoEDADG0s6MmGFWUzWJKAW07r8RDgcQw=",
        headers={
            "X-HubSpot-Signature-v3": "HPW73RUtKmcYoEDADG0s6MmGFWUzWJKAW07r8RDgcQw=",
            "X-HubSpot-Request-Timestamp": "15000000",
        },
        encoding="base64",
        at=15000,
    ),
    Vector(
        provider="recurly",
        source="recurly/recurly-client-ruby spec/recurly/webhooks_spec.rb",
        secret="354fab5bd35f5a0d50845ee7e30165244468b13c2c343f104e4e730a59326d9d",
        body=_RECURLY_BODY,
        signed=b"1663103925004." + _RECURLY_BODY,
        signature="ad24699f3beaa24c9af2cc7ada3ce4c835da0090194241b9d3add83d27f14bc3",
        headers={
            "recurly-signature": "1663103925004,ad24699f3beaa24c9af2cc7ada3ce4c835da0090194241b9d3add83d27f14bc3"
        },
        at=1663103925.004,
    ),
    Vector(
        provider="razorpay",
        source="razorpay/razorpay-python tests/test_client_utility.py",
        secret="key_secret",
        body=_RAZORPAY_BODY,
        signed=_RAZORPAY_BODY,
        signature="d60e67fd884556c045e9be7dad57903e33efc7172c17c6e3ef77db42d2b366e9",
        headers={"X-Razorpay-Signature": "d60e67fd884556c045e9be7dad57903e33efc7172c17c6e3ef77db42d2b366e9"},
    ),
    Vector(
        provider="sendgrid",
        source="sendgrid/sendgrid-python test/unit/test_eventwebhook.py",
        secret=(
            "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaIN"
            "XvVpiglSI8eNEc6wEA3F+g=="
        ),
        body=_SENDGRID_BODY,
        signed=b"1600112502" + _SENDGRID_BODY,
        signature=_SENDGRID_SIGNATURE,
        headers={
            "X-Twilio-Email-Event-Webhook-Signature": _SENDGRID_SIGNATURE,
            "X-Twilio-Email-Event-Webhook-Timestamp": "1600112502",
        },
        algorithm="ecdsa-p256",
        key="base64",
        encoding="base64",
        at=1600112502,
    ),
    Vector(
        provider="braintree_challenge",
        source="braintree/braintree_python test suite, integration_private_key; the same in its other SDKs",
        secret="integration_private_key",
        method="GET",
        url=f"{HOOK}?bt_challenge=20f9f8ed05f77439fe955c977e4c8a53",
        body=b"",
        signed=b"20f9f8ed05f77439fe955c977e4c8a53",
        signature="d9b899556c966b3f06945ec21311865d35df3ce4",
        headers={},
        algorithm="hmac-sha1",
        key="sha1",
    ),
)
