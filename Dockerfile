# syntax=docker/dockerfile:1
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

RUN useradd --create-home --uid 10001 pgveil && install -d -o pgveil /var/lib/pgveil
WORKDIR /opt/pgveil

COPY requirements.lock ./
RUN pip install --require-hashes -r requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY mechanisms mechanisms
COPY sqlrewrite sqlrewrite
COPY provenance provenance
COPY migrations migrations
COPY proxy proxy
RUN pip install --no-deps --no-build-isolation .

USER pgveil
ENV PGVEIL_HOME=/var/lib/pgveil PGVEIL_LISTEN=0.0.0.0:6543
VOLUME /var/lib/pgveil
EXPOSE 6543
# A TCP connection, and PostgreSQL's own SSLRequest: a live proxy answers S or N.
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s CMD ["python", "-c", "import socket; s = socket.create_connection(('127.0.0.1', 6543), 2); s.sendall(bytes.fromhex('0000000804d2162f')); assert s.recv(1) in b'SN'"]
ENTRYPOINT ["pgveil"]
CMD ["serve"]
