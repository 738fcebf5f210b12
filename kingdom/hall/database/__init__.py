"""What the chat is made of: its records, and the database that keeps them."""

DATABASES = {
    "sqlite": "kingdom.hall.database.sqlite:SqliteDatabase",
    "postgresql": "kingdom.hall.database.postgres:PostgresDatabase",
}
"""By the scheme of the `database` in config/hall.yaml. One more database is one module and one line here."""
