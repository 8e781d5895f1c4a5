# Every image of Foliot, a target each: probe, agent, sync, detector, remediator, gateway, keys (which makes everybody's credentials),
# and node (what probe and agent run on).
#
#   docker build --target probe -t foliot/probe .
#
# BuildKit only (mounts). The probe's inner loops are compiled in the stage `wheels`, and no image has a compiler; what is
# installed of others has its hash in requirements/<role>.txt.

# Debian, because the user-space drivers of RDMA NICs and python3-pyverbs are packages of it.
ARG BASE_IMAGE=debian:trixie-slim


# -- making ---------------------------------------------------------------------------------------------------------------

FROM ${BASE_IMAGE} AS python
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*

FROM python AS tools
# Another index than PyPI; these stay in this stage.
ARG PIP_INDEX_URL
ARG UV_DEFAULT_INDEX
ENV UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_BUILD_CONSTRAINT=/requirements/build.txt
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv
COPY requirements/setup.txt requirements/build.txt /requirements/
RUN python3 -m venv /tools \
 && /tools/bin/pip install -q --disable-pip-version-check --require-hashes -r /requirements/setup.txt -r /requirements/build.txt
ENV PATH=/tools/bin:$PATH

# The gateway's page, by the wheel of node whose hash stands in requirements/web.txt, as `make page` does where there is no other.
FROM tools AS page
ARG NPM_CONFIG_REGISTRY
WORKDIR /source
RUN ln -s /tools .venv
COPY requirements/web.txt requirements/
COPY services/gateway/web/npm services/gateway/web/package.json services/gateway/web/package-lock.json services/gateway/web/
RUN services/gateway/web/npm install --loglevel=error --no-fund --no-audit --no-update-notifier --no-save --ignore-scripts --omit=dev
COPY services/gateway/web services/gateway/web
RUN services/gateway/web/npm run -s build -- --logLevel=warn

FROM tools AS wheels
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev python3-dev
WORKDIR /source
COPY native native
RUN uv build -q --wheel --no-build-isolation --python /tools/bin/python --out-dir /wheels native
COPY schemas schemas
COPY sdk sdk
COPY services services
# Part of the gateway's wheel.
COPY --from=page /source/services/gateway/foliot_gateway/static services/gateway/foliot_gateway/static
RUN for member in schemas sdk services/*; do \
      uv build -q --wheel --no-build-isolation --python /tools/bin/python --out-dir /wheels "$member" || exit 1; \
    done

# A role's environment, in two layers: what it needs of others, and what is ours, which changes more often.
FROM tools AS environment
RUN python3 -m venv --without-pip /opt/foliot
ENV VIRTUAL_ENV=/opt/foliot UV_COMPILE_BYTECODE=1 INSTALL_PINS="uv pip install -q --require-hashes -r"
ENV INSTALL_OURS="uv pip install -q --no-index --find-links /wheels"

FROM environment AS probe-environment
COPY requirements/probe.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/uv $INSTALL_PINS /requirements/probe.txt
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels $INSTALL_OURS foliot-probe foliot-native

FROM environment AS agent-environment
COPY requirements/agent.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/uv $INSTALL_PINS /requirements/agent.txt
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels $INSTALL_OURS foliot-agent

FROM environment AS sync-environment
COPY requirements/sync.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/uv $INSTALL_PINS /requirements/sync.txt
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels $INSTALL_OURS foliot-sync

FROM environment AS detector-environment
COPY requirements/detector.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/uv $INSTALL_PINS /requirements/detector.txt
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels $INSTALL_OURS foliot-detector

FROM environment AS remediator-environment
COPY requirements/remediator.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/uv $INSTALL_PINS /requirements/remediator.txt
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels $INSTALL_OURS foliot-remediator

FROM environment AS gateway-environment
COPY requirements/gateway.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/uv $INSTALL_PINS /requirements/gateway.txt
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels $INSTALL_OURS foliot-gateway

FROM environment AS keys-environment
COPY requirements/keys.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/uv $INSTALL_PINS /requirements/keys.txt
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels $INSTALL_OURS "foliot[keys]"


# -- running --------------------------------------------------------------------------------------------------------------

FROM python AS service
RUN groupadd --system --gid 10001 foliot \
 && useradd --system --uid 10001 --gid foliot --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin foliot \
 && install -d -m 1777 /run/foliot
ENV PATH=/opt/foliot/bin:$PATH PYTHONDONTWRITEBYTECODE=1 FOLIOT_HEALTH__FILE=/run/foliot/alive
# numpy would start a thread for every processor of the host, and give none of them work.
ENV OPENBLAS_NUM_THREADS=1
# The file is touched every second while the service's loop turns and the bus answers (foliot.runtime.liveness_file).
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD [ -n "$(find /run/foliot/alive -newermt '10 seconds ago')" ]
STOPSIGNAL SIGTERM
USER foliot
LABEL org.opencontainers.image.licenses="Apache-2.0"

FROM service AS probe
LABEL org.opencontainers.image.title="foliot/probe" \
      org.opencontainers.image.description="Timestamps on the wire, ports and counters, synchronised path delays"
COPY --from=probe-environment /opt/foliot /opt/foliot
# For the page with the time: a volume, where other containers of the node shall read it.
USER root
RUN install -d -o foliot -g foliot /run/foliot-probe
USER foliot
CMD ["python", "-m", "foliot_probe"]

FROM service AS agent
LABEL org.opencontainers.image.title="foliot/agent" \
      org.opencontainers.image.description="Carries out commands on a node, reports what it did, can undo it"
COPY --from=agent-environment /opt/foliot /opt/foliot
# Needs CAP_NET_ADMIN. A container engine gives added capabilities to root alone; with all others dropped, root is a name.
USER root
CMD ["python", "-m", "foliot_agent"]

FROM service AS sync
LABEL org.opencontainers.image.title="foliot/sync" \
      org.opencontainers.image.description="The offset and drift of every clock, with an honest bound"
COPY --from=sync-environment /opt/foliot /opt/foliot
CMD ["python", "-m", "foliot_sync"]

FROM service AS detector
LABEL org.opencontainers.image.title="foliot/detector" \
      org.opencontainers.image.description="Observations in, events out"
COPY --from=detector-environment /opt/foliot /opt/foliot
CMD ["python", "-m", "foliot_detector"]

FROM service AS remediator
LABEL org.opencontainers.image.title="foliot/remediator" \
      org.opencontainers.image.description="Events in, commands out: path states, guards, armed backups"
COPY --from=remediator-environment /opt/foliot /opt/foliot
CMD ["python", "-m", "foliot_remediator"]

FROM service AS gateway
LABEL org.opencontainers.image.title="foliot/gateway" \
      org.opencontainers.image.description="HTTP and gRPC, the trace store, metrics"
COPY --from=gateway-environment /opt/foliot /opt/foliot
ENV FOLIOT_GATEWAY__HOST=0.0.0.0
EXPOSE 8470 8471
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python3", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8470/healthz', timeout=4)"]
CMD ["python", "-m", "foliot_gateway"]

# Runs once, and ends. As root without any capability: containers/keys says why.
FROM python AS keys
LABEL org.opencontainers.image.title="foliot/keys" \
      org.opencontainers.image.description="Makes, lists and revokes credentials for the bus, and its certificates" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=keys-environment /opt/foliot /opt/foliot
COPY containers/nats.conf /usr/local/share/foliot/
COPY containers/keys /usr/local/bin/keys
ENV PATH=/opt/foliot/bin:$PATH PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1 SERVICES_GROUP=10001
ENTRYPOINT ["keys"]

# A stand-in for a host: no Python, nothing of ours but a script. Nothing in it needs an orderly end.
FROM ${BASE_IMAGE} AS node
RUN apt-get update \
 && apt-get install -y --no-install-recommends iproute2 iputils-ping \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
LABEL org.opencontainers.image.title="foliot/node" \
      org.opencontainers.image.description="A network namespace with a frontend NIC and rails, for a probe and an agent" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY containers/node /usr/local/bin/node
STOPSIGNAL SIGKILL
CMD ["node"]
