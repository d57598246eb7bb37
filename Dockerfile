# One image for the three services, with [server]: compose's `command` picks the service.
# With --build-arg EXTRAS=arrow its gateways take and answer Arrow, as Spark's sink wants; that adds 176 MB.
# EXTRAS=kafka has what a record log in Kafka needs, EXTRAS="arrow kafka" both.
FROM python:3.11-slim-bookworm AS build
# The machine's way to its package index, if it has one of its own: --build-arg PIP_INDEX_URL=…
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_PROXY
ARG PIP_DEFAULT_TIMEOUT
ARG EXTRAS=""
ENV PIP_CONSTRAINT=/src/constraints.txt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/build && python -m venv --without-pip /opt/sharequeue

# What builds it and what it depends on: a layer that stands until one of these two files changes.
COPY pyproject.toml constraints.txt ./
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')" > /tmp/build.txt \
    && python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; extras = project['optional-dependencies']; print(*project['dependencies'], *(line for name in 'server $EXTRAS'.split() for line in extras[name]), sep='\n')" > /tmp/run.txt \
    && /opt/build/bin/pip install --requirement /tmp/build.txt \
    && /opt/build/bin/pip --python /opt/sharequeue/bin/python install --requirement /tmp/run.txt

COPY LICENSE README.md ./
COPY migrations migrations
COPY pipeline pipeline
COPY services services
COPY sharequeue sharequeue
COPY sharequeue_http sharequeue_http
COPY sharequeue_kafka sharequeue_kafka
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/wheels . \
    && /opt/build/bin/pip --python /opt/sharequeue/bin/python install --no-deps /tmp/wheels/*.whl

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin sharequeue
COPY --from=build /opt/sharequeue /opt/sharequeue
ENV PATH=/opt/sharequeue/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
CMD ["sharequeue", "--help"]
