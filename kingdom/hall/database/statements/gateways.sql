-- name: note_gateway
INSERT INTO hall_gateways (name, secret, seen_at) VALUES (:name, :secret, :now)
ON CONFLICT (name) DO UPDATE SET secret = excluded.secret, seen_at = excluded.seen_at;

-- name: gateways_with_other_secrets
SELECT name FROM hall_gateways WHERE secret <> :secret AND seen_at > :since ORDER BY name;

-- name: forget_gateways
DELETE FROM hall_gateways WHERE seen_at <= :before;
