"""Examples of the providers for work, mail, messages, identity and clouds."""

from __future__ import annotations

from typing import Any

from .example import Example

SECRET = "made-up-secret-for-tests-only-0123456789"
BASIC = "hooks:made-up-password"
PUBLIC_KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"  # of RFC 8032, section 7.1
TOPIC = "arn:aws:sns:eu-west-1:123456789012:orders"
TENANT = "https://sts.windows.net/00000000-1111-2222-3333-444444444444/"

OPTIONS: dict[str, dict[str, object]] = {
    "google_pubsub": {"email": "push@made-up-project.iam.gserviceaccount.com"},
    "azure_event_grid_entra": {"issuers": (TENANT,)},
}

HUBSPOT = [
    {
        "eventId": 3816279340,
        "subscriptionId": 25,
        "portalId": 33,
        "appId": 1160452,
        "occurredAt": 1762000000123,
        "subscriptionType": "contact.propertyChange",
        "attemptNumber": 0,
        "objectId": 1246965,
        "propertyName": "lifecyclestage",
        "propertyValue": "subscriber",
        "changeSource": "CRM",
    },
    {
        "eventId": 3816279340,
        "subscriptionId": 26,
        "portalId": 33,
        "appId": 1160452,
        "occurredAt": 1762000000123,
        "subscriptionType": "contact.associationChange",
        "attemptNumber": 0,
        "fromObjectId": 1246965,
        "toObjectId": 88,
        "associationType": "CONTACT_TO_COMPANY",
    },
]
HUBSPOT_EXPECTS: list[dict[str, Any]] = [
    {
        "type": "contact.propertyChange",
        "key_origin": "digest",
        "object_id": "1246965",
        "occurred_at": 1762000000.123,
        "invalid": None,
    },
    {"type": "contact.associationChange", "key_origin": "digest", "object_id": "1246965"},
]
JIRA = {
    "timestamp": 1762000000456,
    "webhookEvent": "jira:issue_updated",
    "issue_event_type_name": "issue_generic",
    "user": {"accountId": "5b10a2844c20165700ede21g"},
    "issue": {"id": "10002", "key": "ED-1", "fields": {"summary": "I feel the need"}},
}
GRID = [
    {
        "id": "831e1650-001e-001b-66ab-eeb76e069631",
        "topic": "/subscriptions/1/resourceGroups/shop/providers/Microsoft.Storage/storageAccounts/made",
        "subject": "/blobServices/default/containers/in/blobs/new.txt",
        "eventType": "Microsoft.Storage.BlobCreated",
        "eventTime": "2025-11-01T12:26:40.5Z",
        "data": {"api": "PutBlob", "sequencer": "00000000000004420000000000028963"},
        "dataVersion": "",
        "metadataVersion": "1",
    }
]
GRID_EXPECTS: list[dict[str, Any]] = [
    {
        "type": "Microsoft.Storage.BlobCreated",
        "key_origin": "composite",
        "provider_id": "831e1650-001e-001b-66ab-eeb76e069631",
        "object_id": "/blobServices/default/containers/in/blobs/new.txt",
        "occurred_at": 1762000000.5,
    }
]

EXAMPLES: list[Example] = [
    Example(
        contract="mailgun",
        secret=SECRET,
        body={
            "signature": {},
            "event-data": {
                "id": "CPgfbmQMTCKtHW6uIWtuVe",
                "event": "failed",
                "severity": "permanent",
                "timestamp": 1762000000.908181,
                "recipient": "alice@example.com",
                "message": {"headers": {"message-id": "20251101122640.1.AB@mg.example.com"}},
            },
        },
        expects=[
            {
                "type": "failed",
                "key": "CPgfbmQMTCKtHW6uIWtuVe:20251101122640.1.AB@mg.example.com",
                "key_origin": "composite",
                "provider_id": "CPgfbmQMTCKtHW6uIWtuVe",
                "object_id": "20251101122640.1.AB@mg.example.com",
                "occurred_at": 1762000000.908181,
            }
        ],
    ),
    Example(
        contract="postmark",
        secret=BASIC,
        body={
            "RecordType": "Open",
            "MessageID": "883953f4-6105-42a2-a16a-77a8eac79483",
            "Recipient": "john@example.com",
            "ReceivedAt": "2025-11-01T12:26:40.9065619Z",
            "FirstOpen": True,
            "Client": {"Name": "Chrome 35.0.1916.153"},
            "MessageStream": "outbound",
        },
        expects=[{"type": "Open", "key_origin": "digest", "object_id": "883953f4-6105-42a2-a16a-77a8eac79483"}],
    ),
    Example(
        contract="postmark_inbound",
        secret=BASIC,
        body={
            "MessageID": "22c74902-a0c1-4511-804f-341342852c90",
            "From": "someone@example.com",
            "To": "451d9b70cf9364d23ff6f9d51d870251569e+ahoy@inbound.example.com",
            "Subject": "A question",
            "Date": "Sat, 1 Nov 2025 12:26:40 +0000",
        },
        expects=[{"type": "inbound", "key": "22c74902-a0c1-4511-804f-341342852c90", "key_origin": "unsigned_id"}],
    ),
    Example(
        contract="zoom",
        secret=SECRET,
        body={
            "event": "meeting.participant_left",
            "event_ts": 1762000000789,
            "payload": {
                "account_id": "AAAAAABBBB",
                "object": {
                    "id": "1234567890",
                    "uuid": "4444AAAiAAAAAiAiAiiAii==",
                    "participant": {"user_id": "1677"},
                },
            },
        },
        expects=[
            {
                "type": "meeting.participant_left",
                "key_origin": "digest",
                "object_id": "4444AAAiAAAAAiAiAiiAii==",
                "occurred_at": 1762000000.789,
            }
        ],
    ),
    Example(contract="hubspot", secret=SECRET, body=HUBSPOT, expects=HUBSPOT_EXPECTS),
    Example(contract="hubspot_v2", secret=SECRET, body=HUBSPOT, expects=HUBSPOT_EXPECTS),
    Example(contract="hubspot_v1", secret=SECRET, body=HUBSPOT, expects=HUBSPOT_EXPECTS),
    Example(
        contract="intercom",
        secret=SECRET,
        body={
            "type": "notification_event",
            "app_id": "a86dr8yl",
            "data": {"type": "notification_event_data", "item": {"type": "conversation", "id": "363"}},
            "id": "notif_1d9f8a72-e1a2-4a5c-8f3f-1d0c8f6b7a11",
            "topic": "conversation.user.created",
            "delivery_status": "pending",
            "delivery_attempts": 1,
            "delivered_at": 0,
            "first_sent_at": 1762000001,
            "created_at": 1762000000,
        },
        expects=[
            {
                "type": "conversation.user.created",
                "key": "notif_1d9f8a72-e1a2-4a5c-8f3f-1d0c8f6b7a11",
                "key_origin": "signed_id",
                "object_id": "363",
                "occurred_at": 1762000000.0,
            }
        ],
    ),
    Example(
        contract="zendesk",
        secret=SECRET,
        headers={"X-Zendesk-Webhook-Invocation-Id": "01INVOCATION0000000000001"},
        body={
            "account_id": 22129848,
            "detail": {"id": "6596848315901", "email": "someone@example.com"},
            "event": {"previous": "agent", "current": "admin"},
            "id": "2b24ef10-19d3-4740-93cf-8f98ec4776c0",
            "subject": "zen:user:6596848315901",
            "time": "2025-11-01T12:26:40.25Z",
            "type": "zen:event-type:user.role_changed",
            "zendesk_event_version": "2022-06-20",
        },
        expects=[
            {
                "type": "zen:event-type:user.role_changed",
                "key": "2b24ef10-19d3-4740-93cf-8f98ec4776c0",
                "key_origin": "signed_id",
                "object_id": "6596848315901",
                "delivery_id": "01INVOCATION0000000000001",
                "occurred_at": 1762000000.25,
            }
        ],
    ),
    Example(
        contract="zendesk_triggers",
        secret=SECRET,
        headers={"X-Zendesk-Webhook-Invocation-Id": "01INVOCATION0000000000002"},
        body={"ticket_id": "35436", "status": "open"},
        expects=[
            {
                "type": "trigger",
                "key": "01INVOCATION0000000000002",
                "key_origin": "unsigned_id",
                "object_id": "35436",
            }
        ],
    ),
    Example(
        contract="linear",
        secret=SECRET,
        headers={"Linear-Delivery": "234d1a4e-b617-4388-90fe-adc3633d6b72", "Linear-Event": "Issue"},
        body={
            "action": "update",
            "type": "Issue",
            "createdAt": "2025-11-01T12:26:40.084Z",
            "data": {"id": "2174add1-f7c8-44e3-bbf3-2d60b5ea8bc9", "title": "Made up", "priority": 2},
            "updatedFrom": {"priority": 3},
            "organizationId": "c7f0a5e5-0000-4000-8000-000000000000",
            "webhookTimestamp": 0,
        },
        expects=[
            {
                "type": "Issue.update",
                "key": "234d1a4e-b617-4388-90fe-adc3633d6b72",
                "key_origin": "unsigned_id",
                "object_id": "2174add1-f7c8-44e3-bbf3-2d60b5ea8bc9",
                "occurred_at": 1762000000.084,
            }
        ],
    ),
    Example(
        contract="discord_interactions",
        secret=PUBLIC_KEY,
        body={
            "id": "786008729715212338",
            "application_id": "775799577604522054",
            "type": 2,
            "token": "made-up-interaction-token",
            "version": 1,
            "data": {"id": "771825006014889984", "name": "cardsearch", "type": 1},
        },
        expects=[
            {
                "type": "command.cardsearch",
                "key": "786008729715212338",
                "key_origin": "signed_id",
                "object_id": "771825006014889984",
            }
        ],
    ),
    Example(
        contract="discord_events",
        secret=PUBLIC_KEY,
        body={
            "version": 1,
            "application_id": "1234560123453231555",
            "type": 1,
            "event": {
                "type": "ENTITLEMENT_CREATE",
                "timestamp": "2025-11-01T12:26:40.064834",
                "data": {"id": "1234505980407808808", "user_id": "771129655544643584"},
            },
        },
        expects=[
            {
                "type": "ENTITLEMENT_CREATE",
                "key_origin": "digest",
                "object_id": "1234505980407808808",
                "occurred_at": 1762000000.064834,
            }
        ],
    ),
    Example(
        contract="bitbucket",
        secret=SECRET,
        headers={
            "X-Request-UUID": "7e0c8a3e-0d6f-4a3e-9d3f-2f6f0c5b9a11",
            "X-Event-Key": "pullrequest:updated",
            "X-Attempt-Number": "1",
        },
        body={
            "actor": {"uuid": "{d301aafa-d676-4ee0-88be-962be7417567}"},
            "repository": {"uuid": "{b7f76f39-2f3f-4f1d-9a44-0d3f0a000000}", "full_name": "team/shop"},
            "pullrequest": {"id": 7, "title": "Fix", "updated_on": "2025-11-01T12:26:40.000000+00:00"},
        },
        expects=[
            {
                "type": "pullrequest:updated",
                "key": "7e0c8a3e-0d6f-4a3e-9d3f-2f6f0c5b9a11",
                "key_origin": "unsigned_id",
                "object_id": "7",
            }
        ],
    ),
    Example(
        contract="jira",
        secret=SECRET,
        headers={"X-Atlassian-Webhook-Identifier": "1762000000456-1", "X-Atlassian-Webhook-Flow": "Primary"},
        body=JIRA,
        expects=[
            {
                "type": "jira:issue_updated",
                "key": "1762000000456-1",
                "key_origin": "unsigned_id",
                "object_id": "10002",
                "occurred_at": 1762000000.456,
            }
        ],
    ),
    Example(
        contract="jira_app",
        secret=SECRET,
        headers={"X-Atlassian-Webhook-Identifier": "1762000000456-2"},
        body=JIRA,
        expects=[{"type": "jira:issue_updated", "key": "1762000000456-2", "key_origin": "unsigned_id"}],
    ),
    Example(
        contract="sentry",
        secret=SECRET,
        headers={
            "Request-ID": "4d4b0d4f6c5a4f0e8f1f0a5f3c2b1a00",
            "Sentry-Hook-Resource": "issue",
            "Sentry-Hook-Timestamp": "1762000000",
        },
        body={
            "action": "resolved",
            "installation": {"uuid": "7a485448-a9e2-4c85-8a3c-4f44175783c9"},
            "data": {"issue": {"id": "1170820242", "title": "TypeError", "count": "3"}},
            "actor": {"type": "user", "id": 789, "name": "Made Up"},
        },
        expects=[
            {
                "type": "issue.resolved",
                "key": "4d4b0d4f6c5a4f0e8f1f0a5f3c2b1a00",
                "key_origin": "unsigned_id",
                "object_id": "1170820242",
                "occurred_at": 1762000000.0,
            }
        ],
    ),
    Example(
        contract="vercel",
        secret=SECRET,
        body={
            "id": "uev_a7gbW4Xyq2Ldj6MkdOyTN0bX",
            "type": "deployment.succeeded",
            "createdAt": 1762000000321,
            "region": "sfo1",
            "payload": {
                "team": {"id": "team_1"},
                "deployment": {"id": "dpl_1", "name": "shop"},
                "project": {"id": "p"},
            },
        },
        expects=[
            {
                "type": "deployment.succeeded",
                "key": "uev_a7gbW4Xyq2Ldj6MkdOyTN0bX",
                "key_origin": "signed_id",
                "object_id": "dpl_1",
                "occurred_at": 1762000000.321,
            }
        ],
    ),
    Example(
        contract="typeform",
        secret=SECRET,
        body={
            "event_id": "LtWXD3crgy",
            "event_type": "form_response",
            "form_response": {
                "form_id": "lT4Z3j",
                "token": "a3a12ec67a1365927098a606107fac15",
                "submitted_at": "2025-11-01T12:26:40Z",
                "answers": [{"type": "text", "text": "It's cold right now!"}],
            },
        },
        expects=[
            {
                "type": "form_response",
                "key": "LtWXD3crgy",
                "key_origin": "signed_id",
                "object_id": "a3a12ec67a1365927098a606107fac15",
                "occurred_at": 1762000000.0,
            }
        ],
    ),
    Example(
        contract="calendly",
        secret=SECRET,
        body={
            "event": "invitee.created",
            "created_at": "2025-11-01T12:26:40.000000Z",
            "created_by": "https://api.calendly.com/users/AAAAAAAAAAAAAAAA",
            "payload": {"uri": "https://api.calendly.com/scheduled_events/A/invitees/B", "status": "active"},
        },
        expects=[
            {
                "type": "invitee.created",
                "key_origin": "composite",
                "object_id": "https://api.calendly.com/scheduled_events/A/invitees/B",
                "occurred_at": 1762000000.0,
            }
        ],
    ),
    Example(
        contract="docusign",
        secret=SECRET,
        body={
            "event": "recipient-completed",
            "apiVersion": "v2.1",
            "uri": "/restapi/v2.1/accounts/1/envelopes/2",
            "retryCount": 0,
            "configurationId": 10184070,
            "generatedDateTime": "2025-11-01T12:26:40.6270000Z",
            "data": {
                "accountId": "0f4ac925-0000-4000-8000-000000000000",
                "envelopeId": "1d3f0c7e-0000-4000-8000-000000000000",
                "recipientId": "1",
            },
        },
        expects=[
            {
                "type": "recipient-completed",
                "key_origin": "digest",
                "object_id": "1d3f0c7e-0000-4000-8000-000000000000",
                "occurred_at": 1762000000.627,
            }
        ],
    ),
    Example(
        contract="dropbox",
        secret=SECRET,
        body={
            "list_folder": {"accounts": ["dbid:AAH4f99T0taONIb-OurWxbNQ6ywGRopQngc"]},
            "delta": {"users": [12345678]},
        },
        expects=[{"type": "list_folder", "key_origin": "arrival", "invalid": None}],
    ),
    Example(
        contract="xero",
        secret="bWFkZS11cC13ZWJob29rLWtleS1mb3ItdGVzdHM=",
        body={
            "events": [
                {
                    "resourceUrl": "https://api.xero.com/api.xro/2.0/Contacts/717f2bfc-c6d4-41fd-b238-3f2f0c0cf777",
                    "resourceId": "717f2bfc-c6d4-41fd-b238-3f2f0c0cf777",
                    "tenantId": "c2cc9b6e-9458-4c7d-93cc-f02b81b0594f",
                    "tenantType": "ORGANISATION",
                    "eventCategory": "CONTACT",
                    "eventType": "UPDATE",
                    "eventDateUtc": "2025-11-01T12:26:40.902",
                }
            ],
            "firstEventSequence": 1,
            "lastEventSequence": 1,
            "entropy": "S0m3r4Nd0mt3xt",
        },
        expects=[
            {
                "type": "CONTACT.UPDATE",
                "key_origin": "composite",
                "object_id": "717f2bfc-c6d4-41fd-b238-3f2f0c0cf777",
                "occurred_at": 1762000000.902,
            }
        ],
    ),
    Example(
        contract="quickbooks",
        secret=SECRET,
        body={
            "eventNotifications": [
                {
                    "realmId": "1185883450",
                    "dataChangeEvent": {
                        "entities": [
                            {
                                "name": "Customer",
                                "id": "1",
                                "operation": "Update",
                                "lastUpdated": "2025-11-01T05:26:40-0700",
                            },
                            {
                                "name": "Vendor",
                                "id": "1",
                                "operation": "Create",
                                "lastUpdated": "2025-11-01T12:26:40Z",
                            },
                        ]
                    },
                }
            ]
        },
        expects=[
            {
                "type": "Customer.Update",
                "key": "1185883450:Customer:1:Update:2025-11-01T05:26:40-0700",
                "key_origin": "composite",
                "object_id": "1",
                "occurred_at": 1762000000.0,
            },
            {"type": "Vendor.Create", "occurred_at": 1762000000.0},
        ],
    ),
    Example(
        contract="quickbooks_cloudevents",
        secret=SECRET,
        body=[
            {
                "specversion": "1.0",
                "id": "88cd52aa-33b6-4351-9aa4-47572edbd068",
                "source": "intuit.made-up",
                "type": "qbo.customer.updated.v1",
                "datacontenttype": "application/json",
                "time": "2025-11-01T12:26:40.179453719Z",
                "intuitentityid": "1234",
                "intuitaccountid": "310687",
                "data": {},
            }
        ],
        expects=[
            {
                "type": "qbo.customer.updated.v1",
                "key": "intuit.made-up:88cd52aa-33b6-4351-9aa4-47572edbd068",
                "key_origin": "composite",
                "object_id": "1234",
                "occurred_at": 1762000000.179453,
            }
        ],
    ),
    Example(
        contract="meta",
        secret=SECRET,
        body={
            "object": "page",
            "entry": [
                {
                    "id": "1067280970047460",
                    "time": 1762000000,
                    "changes": [
                        {"field": "feed", "value": {"item": "like", "verb": "add", "user_id": 4}},
                        {"field": "picture"},
                    ],
                },
                {"id": "0", "uid": "0", "time": 1762000000, "changed_fields": ["photos"]},
            ],
        },
        expects=[
            {
                "type": "page.feed",
                "key_origin": "digest",
                "object_id": "1067280970047460",
                "occurred_at": 1762000000.0,
                "invalid": None,
            },
            {"type": "page.picture"},
            {"type": "page", "object_id": "0", "invalid": None},
        ],
    ),
    Example(
        contract="meta_whatsapp",
        secret=SECRET,
        body={
            "object": "whatsapp_business_account",
            "entry": [
                {
                    "id": "102290129340398",
                    "changes": [
                        {
                            "field": "messages",
                            "value": {
                                "messaging_product": "whatsapp",
                                "metadata": {"display_phone_number": "15550783881", "phone_number_id": "1065"},
                                "contacts": [{"profile": {"name": "Made Up"}, "wa_id": "16505551234"}],
                                "messages": [
                                    {
                                        "from": "16505551234",
                                        "id": "wamid.HBgLMTY1MA==",
                                        "timestamp": "1762000000",
                                        "type": "text",
                                        "text": {"body": "Does it come in another color?"},
                                    }
                                ],
                            },
                        },
                        {
                            "field": "messages",
                            "value": {
                                "messaging_product": "whatsapp",
                                "metadata": {"display_phone_number": "15550783881", "phone_number_id": "1065"},
                                "statuses": [
                                    {
                                        "id": "wamid.HBgLMTY1MB==",
                                        "status": "delivered",
                                        "timestamp": "1762000001",
                                        "recipient_id": "16505551234",
                                    }
                                ],
                            },
                        },
                        {
                            "field": "message_template_status_update",
                            "value": {"event": "APPROVED", "message_template_id": 594425479261596, "status": "x"},
                        },
                    ],
                }
            ],
        },
        expects=[
            {
                "type": "messages.text",
                "key_origin": "digest",
                "object_id": "16505551234",
                "occurred_at": 1762000000.0,
            },
            {"type": "messages.delivered", "object_id": "16505551234"},
            {"type": "message_template_status_update.x.APPROVED", "key_origin": "digest", "invalid": None},
        ],
    ),
    Example(
        contract="meta_messenger",
        secret=SECRET,
        body={
            "object": "page",
            "entry": [
                {
                    "id": "682498302938465",
                    "time": 1762000000999,
                    "messaging": [
                        {
                            "sender": {"id": "48"},
                            "recipient": {"id": "682498302938465"},
                            "timestamp": 1762000000123,
                            "message": {"mid": "m_made-up-1", "text": "hello"},
                        },
                        {
                            "sender": {"id": "48"},
                            "recipient": {"id": "682498302938465"},
                            "timestamp": 1762000000124,
                            "reaction": {"mid": "m_made-up-0", "action": "react", "reaction": "love"},
                        },
                    ],
                }
            ],
        },
        expects=[
            {"type": "message", "key_origin": "digest", "object_id": "48", "occurred_at": 1762000000.123},
            {"type": "reaction", "object_id": "48"},
        ],
    ),
    Example(
        contract="telegram",
        secret="made_up_secret_token",
        body={
            "update_id": 10000,
            "message": {
                "message_id": 1365,
                "date": 1762000000,
                "chat": {"id": 1111111, "type": "private"},
                "text": "/start",
            },
        },
        expects=[
            {
                "type": "message",
                "key": "10000",
                "key_origin": "unsigned_id",
                "object_id": "1111111",
                "occurred_at": 1762000000.0,
            }
        ],
    ),
    Example(
        contract="line",
        secret=SECRET,
        body={
            "destination": "U0000000000",
            "events": [
                {
                    "type": "message",
                    "message": {"type": "text", "id": "444573844083572737", "text": "Hi"},
                    "timestamp": 1762000000678,
                    "source": {"type": "user", "userId": "U80696558e1aa831"},
                    "replyToken": "38ef843bde154d9b91c21320ffd17a0f",
                    "mode": "active",
                    "webhookEventId": "01FZ74A0TDDPYRVKNK77XKC3ZR",
                    "deliveryContext": {"isRedelivery": False},
                }
            ],
        },
        expects=[
            {
                "type": "message.text",
                "key": "01FZ74A0TDDPYRVKNK77XKC3ZR",
                "key_origin": "signed_id",
                "object_id": "U80696558e1aa831",
                "occurred_at": 1762000000.678,
            }
        ],
    ),
    Example(
        contract="aws_sns",
        secret=TOPIC,
        body={
            "Type": "Notification",
            "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
            "Subject": "Orders",
            "Message": '{"order": 1001}',
            "UnsubscribeURL": "https://sns.eu-west-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn=made-up",
        },
        expects=[
            {
                "type": "Notification",
                "key": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
                "key_origin": "signed_id",
                "object_id": TOPIC,
            }
        ],
    ),
    Example(
        contract="google_pubsub",
        secret="https://hooks.example.com/google_pubsub",
        body={
            "message": {
                "attributes": {"eventType": "OBJECT_FINALIZE", "objectId": "new.txt"},
                "data": "SGVsbG8=",
                "messageId": "2070443601311540",
                "publishTime": "2025-11-01T12:26:40.789Z",
            },
            "subscription": "projects/made-up/subscriptions/push",
            "deliveryAttempt": 1,
        },
        expects=[
            {
                "type": "message.OBJECT_FINALIZE",
                "key": "projects/made-up/subscriptions/push:2070443601311540",
                "key_origin": "composite",
                "object_id": "new.txt",
                "occurred_at": 1762000000.789,
            }
        ],
    ),
    Example(contract="azure_event_grid", secret=SECRET, body=GRID, expects=GRID_EXPECTS),
    Example(contract="azure_event_grid_entra", secret="api://made-up-app", body=GRID, expects=GRID_EXPECTS),
    Example(
        contract="azure_event_grid_cloudevents",
        secret=SECRET,
        body={
            "specversion": "1.0",
            "id": "9aeb0fdf-c01e-0131-0922-9eb54906e209",
            "source": "/subscriptions/1/resourceGroups/shop",
            "type": "Microsoft.Storage.BlobCreated",
            "subject": "blobServices/default",
            "time": "2025-11-01T12:26:40Z",
            "data": {},
        },
        expects=[
            {
                "type": "Microsoft.Storage.BlobCreated",
                "key": "/subscriptions/1/resourceGroups/shop:9aeb0fdf-c01e-0131-0922-9eb54906e209",
                "key_origin": "composite",
                "object_id": "blobServices/default",
                "occurred_at": 1762000000.0,
            }
        ],
    ),
    Example(
        contract="cloudevents",
        secret=SECRET,
        body=[
            {
                "specversion": "1.0",
                "id": "A234-1234-1234",
                "source": "/mycontext",
                "type": "com.example.made.up",
                "subject": "order-1001",
                "time": "2025-11-01T12:26:40Z",
                "data": {},
            }
        ],
        expects=[
            {
                "type": "com.example.made.up",
                "key": "/mycontext:A234-1234-1234",
                "key_origin": "composite",
                "provider_id": "A234-1234-1234",
                "object_id": "order-1001",
                "occurred_at": 1762000000.0,
            }
        ],
    ),
    Example(
        contract="cloudevents_binary",
        secret=SECRET,
        headers={
            "ce-specversion": "1.0",
            "ce-id": "A234-1234-1234",
            "ce-source": "/mycontext",
            "ce-type": "com.example.made.up",
            "ce-subject": "order-1001",
            "ce-time": "2025-11-01T12:26:40Z",
        },
        body={"total": 5},
        expects=[
            {
                "type": "com.example.made.up",
                "key": "/mycontext:A234-1234-1234",
                "key_origin": "composite",
                "object_id": "order-1001",
                "occurred_at": 1762000000.0,
            }
        ],
    ),
    Example(
        contract="auth0_logs",
        secret=SECRET,
        body=[
            {
                "log_id": "90020251101122640000000000000001",
                "data": {
                    "date": "2025-11-01T12:26:40.000Z",
                    "type": "s",
                    "client_id": "AaiyAPdpYdesoKnqjj8HJqRn4T5titww",
                    "user_id": "auth0|58797",
                    "log_id": "90020251101122640000000000000001",
                },
            }
        ],
        expects=[
            {
                "type": "s",
                "key": "90020251101122640000000000000001",
                "key_origin": "unsigned_id",
                "object_id": "auth0|58797",
                "occurred_at": 1762000000.0,
            }
        ],
    ),
    Example(
        contract="auth0_events",
        secret=SECRET,
        body={
            "id": "evt_1234567890abcdef",
            "source": "urn:auth0:made-up",
            "specversion": "1.0",
            "type": "user.updated",
            "time": "2025-11-01T12:26:40Z",
            "data": {"object": {"user_id": "auth0|507f1f77bcf86cd799439020", "email": "someone@example.com"}},
        },
        expects=[
            {
                "type": "user.updated",
                "key": "evt_1234567890abcdef",
                "key_origin": "unsigned_id",
                "object_id": "auth0|507f1f77bcf86cd799439020",
                "occurred_at": 1762000000.0,
            }
        ],
    ),
    Example(
        contract="okta",
        secret=SECRET,
        body={
            "eventType": "com.okta.event_hook",
            "eventTypeVersion": "1.0",
            "cloudEventsVersion": "0.1",
            "source": "https://example.okta.com/api/v1/eventHooks/who8tsqyrhCdmetzx135",
            "eventId": "b5a188b9-5ece-4636-b041-482ffda96311",
            "data": {
                "events": [
                    {
                        "uuid": "f790999f-fe87-467a-9880-6982a583986c",
                        "published": "2025-11-01T12:26:40.777Z",
                        "eventType": "user.session.start",
                        "actor": {"id": "00uq0a2c6y0d1e1r10g4", "type": "User"},
                        "target": [{"id": "00u1", "type": "User"}],
                    }
                ]
            },
        },
        expects=[
            {
                "type": "user.session.start",
                "key": "f790999f-fe87-467a-9880-6982a583986c",
                "key_origin": "unsigned_id",
                "object_id": "00uq0a2c6y0d1e1r10g4",
                "delivery_id": "b5a188b9-5ece-4636-b041-482ffda96311",
                "occurred_at": 1762000000.777,
            }
        ],
    ),
    Example(
        contract="woocommerce",
        secret=SECRET,
        headers={
            "X-WC-Webhook-Topic": "order.updated",
            "X-WC-Webhook-Delivery-ID": "728b5a9dff3c0b1a",
            "X-WC-Webhook-ID": "12",
        },
        body={"id": 727, "status": "processing", "date_modified_gmt": "2025-11-01T12:26:40", "total": "29.35"},
        expects=[
            {
                "type": "order.updated",
                "key_origin": "digest",
                "object_id": "727",
                "delivery_id": "728b5a9dff3c0b1a",
                "occurred_at": 1762000000.0,
            }
        ],
    ),
    Example(
        contract="workos",
        secret=SECRET,
        body={
            "id": "event_01J8VVFNVS34RJVHXNM6S5ZAGW",
            "event": "dsync.user.updated",
            "created_at": "2025-11-01T12:26:40.361Z",
            "data": {"id": "directory_user_01E1X1B89NH8Z3SDFJR4H7RGX7", "state": "active"},
        },
        expects=[
            {
                "type": "dsync.user.updated",
                "key": "event_01J8VVFNVS34RJVHXNM6S5ZAGW",
                "key_origin": "signed_id",
                "object_id": "directory_user_01E1X1B89NH8Z3SDFJR4H7RGX7",
                "occurred_at": 1762000000.361,
            }
        ],
    ),
]

AGAIN: dict[str, dict[str, Any]] = {
    "zoom": {"download_token": "made-up-and-new"},
    "hubspot": {"0.attemptNumber": 3, "1.attemptNumber": 3},
    "hubspot_v2": {"0.attemptNumber": 3, "1.attemptNumber": 3},
    "hubspot_v1": {"0.attemptNumber": 3, "1.attemptNumber": 3},
    "intercom": {"delivery_attempts": 2, "delivery_status": "retrying", "delivered_at": 5, "first_sent_at": 6},
    "zendesk": {"header:X-Zendesk-Webhook-Invocation-Id": "01INVOCATION0000000000009"},
    "bitbucket": {"header:X-Attempt-Number": "2"},
    "jira": {"header:X-Atlassian-Webhook-Retry": "1"},
    "docusign": {"retryCount": 4},
    "xero": {"firstEventSequence": 0, "lastEventSequence": 7, "entropy": "0th3r"},
    "meta_whatsapp": {"entry.0.changes.0.value.contacts": []},
    "meta_messenger": {"entry.0.time": 1762000999999},
    "line": {"events.0.deliveryContext.isRedelivery": True},
    "aws_sns": {"UnsubscribeURL": "https://sns.eu-west-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn=other"},
    "google_pubsub": {"deliveryAttempt": 2},
    "okta": {"eventId": "another-hook"},
}
"""What differs when the provider delivers the example again, besides signature and signed time."""

OTHER: dict[str, dict[str, Any]] = {
    "mailgun": {"event-data.id": "another", "event-data.event": "complained"},
    "postmark": {"ReceivedAt": "2025-11-01T12:26:41.0000000Z"},
    "postmark_inbound": {"MessageID": "another"},
    "zoom": {"payload.object.participant.user_id": "1678"},  # the same meeting, the same millisecond
    "hubspot": {"0.propertyName": "email"},  # the same eventId and millisecond
    "hubspot_v2": {"0.propertyValue": "customer"},
    "hubspot_v1": {"0.occurredAt": 1762000000124},
    "intercom": {"id": "notif_another"},
    "zendesk": {"id": "another"},
    "zendesk_triggers": {"header:X-Zendesk-Webhook-Invocation-Id": "01INVOCATION0000000000003"},  # the same body
    "linear": {"header:Linear-Delivery": "another", "data.priority": 1},
    "discord_interactions": {"id": "786008729715212339"},
    "discord_events": {"event.timestamp": "2025-11-01T12:26:40.064835"},
    "bitbucket": {"header:X-Request-UUID": "another", "pullrequest.title": "Mend"},
    "jira": {"header:X-Atlassian-Webhook-Identifier": "1762000000457-1", "timestamp": 1762000000457},
    "jira_app": {"header:X-Atlassian-Webhook-Identifier": "1762000000457-2", "timestamp": 1762000000457},
    "sentry": {"header:Request-ID": "another", "action": "unresolved"},
    "vercel": {"id": "uev_another", "type": "deployment.error"},
    "typeform": {"event_id": "another"},
    "calendly": {"event": "invitee.canceled"},
    "docusign": {"data.recipientId": "2"},  # two people sign one envelope at once
    "xero": {"events.0.eventDateUtc": "2025-11-01T12:26:40.903"},
    "quickbooks": {"eventNotifications.0.realmId": "another company"},
    "quickbooks_cloudevents": {"0.id": "another"},
    "meta": {"entry.0.time": 1762000001},
    "meta_whatsapp": {
        "entry.0.changes.0.value.messages.0.id": "wamid.another",
        "entry.0.changes.1.value.statuses.0.status": "read",
        "entry.0.changes.2.value.message_template_id": 2,
    },
    "meta_messenger": {
        "entry.0.messaging.0.message.mid": "m_made-up-2",
        "entry.0.messaging.1.reaction.action": "unreact",
    },
    "telegram": {"update_id": 10001},
    "line": {"events.0.webhookEventId": "01FZ74ASS536FW97EX38NKCZQK"},
    "aws_sns": {"MessageId": "another"},
    "google_pubsub": {"subscription": "projects/made-up/subscriptions/another"},
    "azure_event_grid": {"0.topic": "another"},
    "azure_event_grid_entra": {"0.id": "another"},
    "azure_event_grid_cloudevents": {"source": "another"},
    "cloudevents": {"0.source": "another"},
    "cloudevents_binary": {"header:ce-source": "another"},
    "auth0_logs": {"0.log_id": "another"},
    "auth0_events": {"id": "evt_another"},
    "okta": {"data.events.0.uuid": "another"},
    "woocommerce": {"status": "completed"},  # changed twice in one second
    "workos": {"id": "event_another"},
}
"""What differs in the nearest other event of the same object: at least the first item must be another event."""

SIGNED_ONCE = frozenset({"aws_sns"})
"""Whose signed time is the event's, so that a redelivery has the same."""
