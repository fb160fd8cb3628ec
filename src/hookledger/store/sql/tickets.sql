-- name: draw_tickets
-- The row comes with the first draw: the target of a copy must be empty.
INSERT INTO {schema}.tickets AS t (one, last) VALUES (1, :count)
ON CONFLICT (one) DO UPDATE SET last = t.last + excluded.last
RETURNING last
