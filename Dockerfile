# The worker as an image: installed in one stage, run in another without pip.
FROM python:3.11-slim AS build
# docker build --build-arg EXTRAS=llm,mcp,otel,postgres . for one that asks models and tool servers
ARG EXTRAS=otel,postgres
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY scripts/build_backend.py scripts/
COPY ctxb ctxb
COPY formatters formatters
COPY prompts prompts
COPY service service
# without pip: what runs in the end can't install anything
RUN python -m venv --without-pip /opt/ctxb \
 && pip --python /opt/ctxb/bin/python install --no-cache-dir --disable-pip-version-check \
        --constraint constraints.txt ".[${EXTRAS}]"

FROM python:3.11-slim
COPY --from=build /opt/ctxb /opt/ctxb
# pip comes with the base; a number for the user, so that Kubernetes can tell that it isn't root
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3.*/ensurepip /usr/local/lib/python3.*/site-packages/* \
 && groupadd --gid 10001 ctxb \
 && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin ctxb \
 && install --directory --owner 10001 --group 10001 /var/lib/ctxb
ENV PATH=/opt/ctxb/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    CTXB_LOG__FORMAT=json \
    CTXB_STORE__URL=sqlite:////var/lib/ctxb/ctxb.db \
    CTXB_WORKER__HEARTBEAT_FILE=/tmp/ctxb-heartbeat
USER 10001:10001
# config.yml and .env are looked for here, and the database is kept here
WORKDIR /var/lib/ctxb
VOLUME /var/lib/ctxb
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["ctxb", "healthcheck"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["ctxb"]
CMD ["worker"]
