-- Which gateways use this database, and a digest of the secret with which each signs tokens.
CREATE TABLE hall_gateways (
    name varchar(300) PRIMARY KEY,
    secret varchar(64) NOT NULL,
    seen_at timestamptz(3) NOT NULL
);
