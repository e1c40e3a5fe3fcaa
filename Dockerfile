# Two images. The last stage is the default:
#   docker build -t holdfast .                                the platform; add your tasks: FROM holdfast, COPY tasks.py /app/
#   docker build -t holdfast-extraction --target extraction . the extraction application with its scanners
#
# Base images are pinned by digest, Python packages by deploy/constraints.txt, scanners by the versions below.
ARG PYTHON_IMAGE=python:3.13.7-slim-bookworm@sha256:adafcc17694d715c905b4c7bebd96907a1fd5cf183395f0ebc4d3428bd22d92d
ARG NODE_IMAGE=node:22.20.0-bookworm-slim@sha256:b21fe589dfbe5cc39365d0544b9be3f1f33f55f3c86c87a76ff65a02f8f5848e

# -- what is installed, made where compilers and caches may be ---------------------------------------------------------
FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY deploy/constraints.txt deploy/constraints.txt
COPY src src
RUN python -m venv /opt/holdfast \
    && /opt/holdfast/bin/pip install --constraint deploy/constraints.txt ".[web,fly,kubernetes,otel]"

FROM build AS build-extraction
# Semgrep has a home of its own: it wants other versions of the packages that we use.
ARG SEMGREP_VERSION=1.184.0
RUN /opt/holdfast/bin/pip install --constraint deploy/constraints.txt ".[extraction]" \
    && python -m venv /opt/semgrep \
    && /opt/semgrep/bin/pip install "semgrep==${SEMGREP_VERSION}"

FROM ${NODE_IMAGE} AS build-cdxgen
ARG CDXGEN_VERSION=12.8.4
RUN npm install --global --omit=dev --no-fund --no-audit --prefix /opt/cdxgen "@cyclonedx/cdxgen@${CDXGEN_VERSION}"

# -- what runs ---------------------------------------------------------------------------------------------------------
FROM ${PYTHON_IMAGE} AS runtime
RUN groupadd --system --gid 10001 holdfast \
    && useradd --system --uid 10001 --gid 10001 --home-dir /app --shell /usr/sbin/nologin holdfast
COPY --from=build /opt/holdfast /opt/holdfast
ENV PATH=/opt/holdfast/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOLDFAST_LOG_FORMAT=json
WORKDIR /app
USER 10001:10001
# Exec form: the worker is process 1 and gets the signal itself. A shell in between would swallow it.
STOPSIGNAL SIGTERM
ENTRYPOINT ["holdfast"]
CMD ["worker"]

FROM runtime AS extraction
USER 0:0
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates git \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-extraction /opt/holdfast /opt/holdfast
COPY --from=build-extraction /opt/semgrep /opt/semgrep
COPY --from=build-cdxgen /usr/local/bin/node /usr/local/bin/node
COPY --from=build-cdxgen /opt/cdxgen /opt/cdxgen
COPY deploy/extraction_app.py /app/tasks.py
ENV PATH=$PATH:/opt/cdxgen/bin:/opt/semgrep/bin \
    DEPSCAN_CACHE_DIR=/tmp/depscan-cache \
    SEMGREP_SEND_METRICS=off
USER 10001:10001
CMD ["worker", "--concurrency", "1"]

FROM runtime AS holdfast
