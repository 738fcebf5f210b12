-- name: fact
SELECT value FROM hall_facts WHERE name = :name;

-- name: choose_fact
-- The first one stays.
INSERT INTO hall_facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING;

-- name: note_fact
INSERT INTO hall_facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value;
