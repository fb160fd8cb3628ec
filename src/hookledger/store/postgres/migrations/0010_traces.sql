-- Where traces continue in another process: the span of an attempt, and of the attempt that planned an effect, as
-- traceparent; null where the application has no tracing. correlation_id: of the delivery that an outbox effect goes
-- back to; null where that is the event's id.
ALTER TABLE {schema}.attempts ADD COLUMN traceparent text CHECK (length(traceparent) = 55);
ALTER TABLE {schema}.effects
    ADD COLUMN traceparent    text CHECK (length(traceparent) = 55),
    ADD COLUMN correlation_id text CHECK (length(correlation_id) BETWEEN 1 AND 128);
