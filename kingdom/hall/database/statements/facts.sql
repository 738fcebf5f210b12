-- name: fact
SELECT value FROM hall_facts WHERE name = :name;

-- name: choose_fact
-- The first one stays.
INSERT INTO hall_facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING;

-- name: note_fact
INSERT INTO hall_facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: count_fact
-- One statement, so that two transactions at once count two.
INSERT INTO hall_facts (name, value) VALUES (:name, '1')
ON CONFLICT (name) DO UPDATE SET value = CAST(CAST(hall_facts.value AS BIGINT) + 1 AS TEXT);
