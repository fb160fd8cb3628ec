-- Where traces continue in another process. PostgreSQL's file describes the columns.
ALTER TABLE attempts ADD COLUMN traceparent TEXT CHECK (length(traceparent) = 55);
ALTER TABLE effects ADD COLUMN traceparent TEXT CHECK (length(traceparent) = 55);
ALTER TABLE effects ADD COLUMN correlation_id TEXT CHECK (length(correlation_id) BETWEEN 1 AND 128);
