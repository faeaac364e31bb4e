# The service, and the demo agent as a second image: docs/docker.md says how they run.

FROM python:3.11-slim AS builder
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
# The builder's own pip fills the venv from outside: none is inside it, nor in what is made of it.
RUN python -m venv --without-pip /opt/isthmus
COPY deploy/build.lock deploy/service.lock deploy/
RUN pip install --require-hashes --only-binary :all: -r deploy/build.lock \
    && pip --python /opt/isthmus/bin/python install --require-hashes --only-binary :all: -r deploy/service.lock
COPY . .
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && pip --python /opt/isthmus/bin/python install --no-deps --no-index /wheels/isthmus-*.whl

FROM python:3.11-slim AS base
ENV PATH=/opt/isthmus/bin:$PATH PYTHONUNBUFFERED=1
COPY --from=builder /opt/isthmus /opt/isthmus
STOPSIGNAL SIGTERM

FROM base AS demo-agent
COPY examples/demo_agent.py examples/demo_answers.py examples/demo_script.py deploy/demo_agent_service.py /opt/demo/
USER 1000:1000
ENTRYPOINT ["python", "/opt/demo/demo_agent_service.py"]

# The last stage is what a build without a target makes. It is root: its capabilities are compose.yaml's.
FROM base AS isthmus
VOLUME ["/var/lib/isthmus", "/srv/agents"]
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-c", "import urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["isthmus"]
CMD ["serve", "-c", "/etc/isthmus/config.toml"]
