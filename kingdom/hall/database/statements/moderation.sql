-- name: blank_message
UPDATE messages SET content = '' WHERE id = :id AND room_id = :room_id RETURNING sender_id;

-- name: forget_about
DELETE FROM hall_about WHERE message_id = :message_id;

-- name: note_removal
INSERT INTO hall_removals (message_id, item_id) VALUES (:message_id, :item_id) ON CONFLICT (message_id) DO NOTHING;

-- name: note_erasure
-- A row of its own each time: one that is noted while another is at work may be about a copy that is already passed.
INSERT INTO hall_erasures (id, room_id, sender_id, client_msg_id)
SELECT :id, room_id, sender_id, client_msg_id FROM messages WHERE messages.id = :message_id;

-- name: erasures
SELECT id, room_id, sender_id, client_msg_id FROM hall_erasures;

-- name: erased
DELETE FROM hall_erasures WHERE id = :id;

-- name: ban
INSERT INTO hall_accounts (user_id, role, banned_at) VALUES (:user_id, 'member', :at)
ON CONFLICT (user_id) DO UPDATE SET banned_at = coalesce(hall_accounts.banned_at, excluded.banned_at);

-- name: unban
UPDATE hall_accounts SET banned_at = NULL WHERE user_id = :user_id;

-- name: ended_sessions_of
SELECT id FROM hall_sessions WHERE user_id = :user_id AND ended_at IS NOT NULL AND expires_at > :now;

-- name: audit
INSERT INTO hall_audit (command_id, at, ordered_by, command, target)
VALUES (:command_id, :at, :ordered_by, :command, :target) ON CONFLICT (command_id) DO NOTHING;

-- name: audited
SELECT at, ordered_by, command, target FROM hall_audit WHERE command_id = :command_id;

-- name: audits
SELECT command_id, at, ordered_by, command, target FROM hall_audit ORDER BY at DESC, command_id LIMIT :most;
