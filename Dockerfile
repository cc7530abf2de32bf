# The image of the service. The first stage installs and trims; the second one is a base and one layer on it.
#
# Every Python package is pinned by hash (requirements*.lock). `make image` builds it on bases from Debian packages: one
# with pip (BUILD), and one with Python and no shell (BASE), which is why nothing is run in the second stage. The default
# is for `docker build .`; name it by digest where a build has to be repeatable to the bit. Both need the same Python.
ARG BASE=python:3.13-slim
ARG BUILD=${BASE}

FROM ${BUILD} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/topogate
COPY requirements.lock requirements-build.lock ./
RUN /opt/build/bin/pip install --no-compile --require-hashes -r requirements-build.lock \
 && /opt/build/bin/pip --python /opt/topogate/bin/python install --no-compile \
      --only-binary :all: --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY certs certs
COPY engine engine
COPY webhook webhook
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
 && /opt/build/bin/pip --python /opt/topogate/bin/python install --no-compile --no-deps --no-index /wheels/*.whl
COPY hack/image/trim.py ./
# Compiled here because the running container's file system is read-only.
RUN /opt/topogate/bin/python trim.py --environment /opt/topogate --target /out

FROM ${BASE}
LABEL org.opencontainers.image.title="topogate" \
      org.opencontainers.image.description="Topology-aware gang placement for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out /
# Two arenas: with one for every few threads, what a large review took is not given back, and is taken again elsewhere.
ENV PATH=/opt/topogate/bin:/usr/local/bin:/usr/bin:/bin \
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
