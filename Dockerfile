# One image for everything: compose's `command` picks the service.
FROM python:3.11-slim-bookworm AS build
# The machine's way to its package index, if it has one of its own: --build-arg PIP_INDEX_URL=…
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_PROXY
ARG PIP_DEFAULT_TIMEOUT
ENV PIP_CONSTRAINT=/src/constraints.txt \
    PIP_BUILD_CONSTRAINT=/src/constraints.txt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv --without-pip /opt/sharequeue

# The dependencies alone: a layer that stands until one of these two files changes.
COPY pyproject.toml constraints.txt ./
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > /tmp/requirements.txt \
    && pip --python /opt/sharequeue/bin/python install --requirement /tmp/requirements.txt

COPY migrations migrations
COPY services services
COPY sharequeue sharequeue
RUN pip wheel --no-deps --wheel-dir /tmp/wheels . \
    && pip --python /opt/sharequeue/bin/python install --no-deps /tmp/wheels/*.whl

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin sharequeue
COPY --from=build /opt/sharequeue /opt/sharequeue
ENV PATH=/opt/sharequeue/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
CMD ["sharequeue", "--help"]
