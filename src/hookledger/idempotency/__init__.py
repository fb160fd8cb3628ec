"""The application's own POST routes that take `Idempotency-Key`, guarded by the ledger (decision 0065)."""
