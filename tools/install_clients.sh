#!/bin/sh
# Installs the clients of tests/clients into this directory and nowhere else: .venv-clients (PyPI), .clients/superset
# (PyPI, too choosy to live with others), .clients/npm and .clients/debian (packages unpacked and not installed). Each part is made once per lock file; a part that
# a machine or its registries lack is left out with a line that says so, and its tests are skipped. WITHOUT=superset leaves
# Superset out.
set -u
cd "$(dirname "$0")/.." || exit 1
PYTHON=${PYTHON:-python3}
PACKAGES="libpostgresql-jdbc-java libscram-java libstringprep-java odbc-postgresql libodbcinst2 libodbc2 libltdl7 libpq5"

without() { echo "clients: without $1"; }

# current MARK FILE...: whether the part was already made from these very files.
current() {
  mark=$1
  shift
  [ -f "$mark" ] && [ "$(cat "$mark")" = "$(cat "$@" | cksum)" ]
}

from_pypi() {
  echo "clients: making .venv-clients (once; a few minutes)"
  "$PYTHON" -m venv .venv-clients || return 1
  .venv-clients/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
    -r requirements-clients.lock || { rm -rf .venv-clients; return 1; }
  cat requirements-clients.lock | cksum > .venv-clients/.ready
}

superset() {
  echo "clients: making .clients/superset (once; a few minutes)"
  mkdir -p .clients && "$PYTHON" -m venv .clients/superset || return 1
  .clients/superset/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
    -r requirements-superset.lock || { rm -rf .clients/superset; return 1; }
  cat requirements-superset.lock | cksum > .clients/superset/.ready
}

from_npm() {
  command -v npm > /dev/null || return 1
  mkdir -p .clients/npm && cp tests/clients/npm/package.json tests/clients/npm/package-lock.json .clients/npm/ || return 1
  (cd .clients/npm && npm ci --no-fund --no-audit --loglevel=error) || return 1
  cat tests/clients/npm/package-lock.json | cksum > .clients/npm/.ready
}

from_debian() {
  command -v apt-get > /dev/null && command -v dpkg > /dev/null || return 1
  [ "$(id -u)" = 0 ] && { apt-get update -qq || true; }
  folder=$(mktemp -d) || return 1
  (cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq $PACKAGES) || { rm -rf "$folder"; return 1; }
  rm -rf .clients/debian && mkdir -p .clients/debian
  for package in "$folder"/*.deb; do
    dpkg -x "$package" .clients/debian || { rm -rf "$folder" .clients/debian; return 1; }
  done
  rm -rf "$folder"
  cat tools/install_clients.sh | cksum > .clients/debian/.ready
}

current .venv-clients/.ready requirements-clients.lock || from_pypi || without "the clients from PyPI"
current .clients/npm/.ready tests/clients/npm/package-lock.json || from_npm || without "node pg and postgres.js (npm)"
current .clients/debian/.ready tools/install_clients.sh || from_debian || without "JDBC and ODBC (Debian packages)"
[ "${WITHOUT:-}" = superset ] || current .clients/superset/.ready requirements-superset.lock || superset || without "Apache Superset (PyPI)"
command -v java > /dev/null || without "JDBC (no java)"
exit 0
