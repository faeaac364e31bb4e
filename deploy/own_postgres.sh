#!/bin/sh
# Run once by the postgres image, as its superuser, in an empty server: a database and a role that is no superuser.
set -eu
psql --set ON_ERROR_STOP=1 --set password="$ISTHMUS_DB_PASSWORD" --username "$POSTGRES_USER" --dbname postgres <<'SQL'
CREATE ROLE isthmus LOGIN PASSWORD :'password';
CREATE DATABASE isthmus OWNER isthmus;
\connect isthmus
CREATE EXTENSION vector;
SQL
