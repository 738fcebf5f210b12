-- name: add_user
-- Returns no row when the email is registered already.
INSERT INTO users (id, email, password_hash, created_at) VALUES (:id, :email, :password_hash, :created_at)
ON CONFLICT (email) DO NOTHING RETURNING id;

-- name: name_user
INSERT INTO hall_profiles (user_id, name) VALUES (:user_id, :name)
ON CONFLICT (user_id) DO UPDATE SET name = excluded.name;

-- name: user_by_email
-- Ours are lower-case; imported ones are found as they were spelt.
SELECT id, email, password_hash FROM users WHERE email = :email OR email = :spelt ORDER BY email = :spelt DESC LIMIT 1;

-- name: user_by_id
SELECT users.id, email, name FROM users LEFT JOIN hall_profiles ON user_id = users.id WHERE users.id = :id;

-- name: change_password_hash
-- Only the hash that was verified: whoever changed it meanwhile wins.
UPDATE users SET password_hash = :new WHERE id = :id AND password_hash = :old;
