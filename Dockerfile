# The image of the service. Two stages from one base: the first one installs, the second one only runs.
#
# Every Python package is pinned by hash (requirements*.lock). The base is named by tag here; a build that has to be
# repeatable to the bit names it by digest: --build-arg BASE=python:3.13-slim@sha256:...
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
WORKDIR /src
RUN python -m venv /opt/build && python -m venv --without-pip /opt/topogate
COPY requirements.lock requirements-build.lock ./
RUN /opt/build/bin/pip install --require-hashes -r requirements-build.lock \
 && /opt/build/bin/pip --python /opt/topogate/bin/python install \
      --only-binary :all: --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY certs certs
COPY engine engine
COPY webhook webhook
# Compiled here because the running container's file system is read-only.
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
 && /opt/build/bin/pip --python /opt/topogate/bin/python install --no-deps --no-index /wheels/*.whl \
 && /opt/topogate/bin/python -m compileall -q /opt/topogate/lib

FROM ${BASE}
LABEL org.opencontainers.image.title="topogate" \
      org.opencontainers.image.description="Topology-aware gang placement for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
# Nothing is installed into a running container.
RUN python -m pip uninstall --yes --root-user-action=ignore pip
COPY --from=build /opt/topogate /opt/topogate
# Two arenas: with one for every few threads, what a large review took is not given back, and is taken again elsewhere.
ENV PATH=/opt/topogate/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1 \
    MALLOC_ARENA_MAX=2
# As in manifests/base/deployment.yaml; runs with a read-only root and an emptyDir on /tmp.
USER 65532:65532
WORKDIR /tmp
EXPOSE 8443 8080
ENTRYPOINT ["topogate"]
CMD ["serve"]
