-- name: add_user
-- Returns no row when the email is registered already.
INSERT INTO users (id, email, password_hash, created_at) VALUES (:id, :email, :password_hash, :created_at)
ON CONFLICT (email) DO NOTHING RETURNING id;

-- name: name_user
INSERT INTO hall_profiles (user_id, name) VALUES (:user_id, :name)
ON CONFLICT (user_id) DO UPDATE SET name = excluded.name;

-- name: user_by_email
-- Ours are lower-case; imported ones are found as they were spelt.
SELECT id, email, password_hash, banned_at FROM users LEFT JOIN hall_accounts ON user_id = id
WHERE email = :email OR email = :spelt ORDER BY email = :spelt DESC LIMIT 1;

-- name: user_by_id
-- Who has no account of ours was registered before there were any, or imported: a member.
SELECT users.id, email, name, coalesce(role, 'member') AS role, banned_at FROM users
LEFT JOIN hall_profiles ON hall_profiles.user_id = users.id LEFT JOIN hall_accounts ON hall_accounts.user_id = users.id
WHERE users.id = :id;

-- name: users
-- People: the kingdom has a user, too, under which it speaks.
SELECT users.id, email, name, coalesce(role, 'member') AS role, banned_at, created_at,
    (SELECT count(*) FROM hall_sessions
        WHERE hall_sessions.user_id = users.id AND ended_at IS NULL AND expires_at > :now) AS sessions
FROM users
LEFT JOIN hall_profiles ON hall_profiles.user_id = users.id LEFT JOIN hall_accounts ON hall_accounts.user_id = users.id
WHERE coalesce(role, 'member') <> 'kingdom' ORDER BY created_at, users.id;

-- name: change_password_hash
-- Only the hash that was verified: whoever changed it meanwhile wins.
UPDATE users SET password_hash = :new WHERE id = :id AND password_hash = :old;

-- name: set_password_hash
UPDATE users SET password_hash = :password_hash WHERE id = :id;

-- name: owners
SELECT user_id FROM hall_accounts WHERE role = 'owner';

-- name: give_role
INSERT INTO hall_accounts (user_id, role) VALUES (:user_id, :role)
ON CONFLICT (user_id) DO UPDATE SET role = excluded.role;

-- name: add_invite
INSERT INTO hall_invites (code_hash, role, room_id, made_at, expires_at, uses_left)
VALUES (:code_hash, :role, :room_id, :made_at, :expires_at, :uses_left);

-- name: take_invite
-- Of two who come with the last use of one code, one gets a row.
UPDATE hall_invites SET uses_left = uses_left - 1
WHERE code_hash = :code_hash AND uses_left > 0 AND expires_at > :now RETURNING role, room_id;

-- name: forget_invites
DELETE FROM hall_invites WHERE expires_at <= :now OR uses_left = 0;

-- name: forget_owner_invites
DELETE FROM hall_invites WHERE role = 'owner';

-- name: add_session
INSERT INTO hall_sessions (id, user_id, agent, begun_at, expires_at)
VALUES (:id, :user_id, :agent, :begun_at, :expires_at);

-- name: forget_sessions
DELETE FROM hall_sessions WHERE user_id = :user_id AND expires_at <= :now;

-- name: sessions_of
SELECT id, agent, begun_at, expires_at FROM hall_sessions
WHERE user_id = :user_id AND ended_at IS NULL AND expires_at > :now ORDER BY begun_at, id;

-- name: end_sessions
-- One of them, or all without an id, but for one.
UPDATE hall_sessions SET ended_at = :now
WHERE user_id = :user_id AND (CAST(:id AS uuid) IS NULL OR id = :id) AND (CAST(:but AS uuid) IS NULL OR id <> :but)
    AND ended_at IS NULL AND expires_at > :now
RETURNING id;

-- name: end_all_sessions
UPDATE hall_sessions SET ended_at = :now WHERE ended_at IS NULL AND expires_at > :now RETURNING id;

-- name: session
-- One that goes on.
SELECT id FROM hall_sessions WHERE id = :id AND user_id = :user_id AND ended_at IS NULL AND expires_at > :now;

-- name: sessions_ended_since
SELECT id FROM hall_sessions WHERE ended_at >= :since;
