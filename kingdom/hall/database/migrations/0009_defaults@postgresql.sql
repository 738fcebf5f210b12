-- What other services leave to the database when they write to these tables, and what binds their rows together.
DO $$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT * FROM (VALUES
            ('users', 'id', 'gen_random_uuid()'),
            ('users', 'created_at', 'now()'),
            ('rooms', 'id', 'gen_random_uuid()'),
            ('rooms', 'created_at', 'now()'),
            ('room_members', 'joined_at', 'now()'),
            ('messages', 'type', '''TEXT'''),
            ('messages', 'created_at', 'now()')
        ) AS defaults (of_table, of_column, value)
        WHERE EXISTS (
            SELECT 1 FROM information_schema.columns
            WHERE table_schema = current_schema() AND table_name = of_table AND column_name = of_column
                AND column_default IS NULL)
    LOOP
        EXECUTE format('ALTER TABLE %I ALTER COLUMN %I SET DEFAULT %s', wanted.of_table, wanted.of_column, wanted.value);
    END LOOP;
    FOR wanted IN
        SELECT * FROM (VALUES
            ('room_members', 'room_id', 'rooms'),
            ('room_members', 'user_id', 'users'),
            ('messages', 'room_id', 'rooms'),
            ('messages', 'sender_id', 'users')
        ) AS bonds (of_table, of_column, to_table)
        WHERE NOT EXISTS (
            SELECT 1 FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey)
            WHERE contype = 'f' AND conrelid = of_table::regclass AND attname = of_column)
    LOOP
        -- Rows that are there already may name what is gone.
        EXECUTE format(
            'ALTER TABLE %I ADD FOREIGN KEY (%I) REFERENCES %I (id) NOT VALID',
            wanted.of_table, wanted.of_column, wanted.to_table);
    END LOOP;
END $$;
