"""One PostgreSQL database for many tests: emptied for each of them, which costs a tenth of making one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from hookledger import Inbox
from tests.services.postgres import Databases, complete

END_OTHERS = """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""

EMPTY = """DO $$ DECLARE name text; BEGIN
    SET LOCAL lock_timeout = '10s';
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
    CREATE SCHEMA public;
    EXECUTE format('ALTER DATABASE %I RESET ALL', current_database());
END $$"""

WITHOUT_ROWS = """CREATE FUNCTION pg_temp.without_rows() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name regclass;
    size bigint;
BEGIN
    SET LOCAL lock_timeout = '10s';
    IF EXISTS (SELECT FROM pg_namespace AS n WHERE nspname = 'public' AND (nspacl IS NOT NULL OR EXISTS (
               SELECT FROM pg_depend WHERE refclassid = 'pg_namespace'::regclass AND refobjid = n.oid))) THEN
        DROP SCHEMA public CASCADE;
        CREATE SCHEMA public;
    END IF;
    FOR name, size IN SELECT oid, pg_relation_size(oid) FROM pg_class
                      WHERE relnamespace = 'hookledger'::regnamespace AND relkind = 'r'
                      AND relname NOT IN ('migrations', 'probe', 'schema_support') LOOP
        CONTINUE WHEN size = 0;
        EXECUTE CASE WHEN size > 1000000 THEN format('TRUNCATE %s', name) ELSE format('DELETE FROM %s', name) END;
    END LOOP;
END $$"""

MADE_OF = """WITH s AS (SELECT oid FROM pg_namespace WHERE nspname = 'hookledger'),
c AS (SELECT oid, relname FROM pg_class WHERE relnamespace IN (SELECT oid FROM s))
SELECT md5(string_agg(part, E'\n' ORDER BY part)) FROM (
    SELECT concat_ws(' ', relname, attname, atttypid, atttypmod, attnotnull, pg_get_expr(adbin, adrelid)) AS part
    FROM c JOIN pg_attribute ON attrelid = c.oid LEFT JOIN pg_attrdef ON adrelid = c.oid AND adnum = attnum
    UNION ALL SELECT concat_ws(' ', conrelid, conname, pg_get_constraintdef(oid)) FROM pg_constraint
              WHERE connamespace IN (SELECT oid FROM s)
    UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'hookledger'
    UNION ALL SELECT concat_ws(' ', c.relname, tgname, tgenabled) FROM pg_trigger JOIN c ON c.oid = tgrelid
    UNION ALL SELECT proname FROM pg_proc WHERE pronamespace IN (SELECT oid FROM s)
    UNION ALL SELECT relname || coalesce(relacl::text, '') FROM pg_class WHERE relnamespace IN (SELECT oid FROM s)
    UNION ALL SELECT concat_ws(' ', nspname, nspacl::text) FROM pg_namespace
              WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'public')
    UNION ALL SELECT setconfig::text FROM pg_db_role_setting JOIN pg_database d ON d.oid = setdatabase
              WHERE datname = current_database()
) AS parts"""
"""What the schema consists of: a test may have changed it."""

Connection = psycopg.Connection[tuple[Any, ...]]
Row = tuple[Any, ...]
VERSIONS = "SELECT array_agg(version ORDER BY version) FROM hookledger.migrations"
OURS = "hookledger tests"
"""The application_name of the connection that is kept."""


class SharedDatabase:
    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._name = f"hookledger_test_{uuid.uuid4().hex}"
        self.url = databases.create_database(self._name)
        self._kept: Connection | None = None
        """One connection for all tests: a new one would start a process and read the catalogue again for each."""
        self._migrated: Row | None = None
        """What the schema consists of after its migrations, and their versions."""

    def drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
        self._databases.drop_database(self._name)

    def empty(self) -> None:
        """Leave nothing in it, our schema neither."""
        with self._alone() as connection:
            connection.execute(EMPTY)

    def migrate(self) -> None:
        """Leave our schema without rows."""
        with self._alone() as connection:
            if self._migrated is not None and _made_of(connection) == self._migrated:
                connection.execute("SELECT pg_temp.without_rows()")
            else:
                connection.execute(EMPTY)
                complete(Inbox(self.url).migrate())
                self._migrated = _made_of(connection)

    @contextmanager
    def _alone(self) -> Iterator[Connection]:
        """A connection, after those that the last test left have been ended."""
        try:
            connection = self._kept or self._connect()
            connection.execute(END_OTHERS)
        except psycopg.OperationalError:  # the last test ended it
            connection = self._connect()
            connection.execute(END_OTHERS)
        self._kept = connection
        yield connection

    def _connect(self) -> Connection:
        connection = psycopg.connect(self.url, autocommit=True, connect_timeout=30, application_name=OURS)
        connection.prepare_threshold = 1
        connection.execute(WITHOUT_ROWS)
        return connection


def _made_of(connection: Connection) -> Row:
    exists = connection.execute("SELECT to_regclass('hookledger.migrations') IS NOT NULL").fetchone()
    versions = connection.execute(VERSIONS).fetchone() if exists == (True,) else None
    return connection.execute(MADE_OF).fetchone(), versions
