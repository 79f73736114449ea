# syntax=docker/dockerfile:1
# weir, built from this folder and put on a small Debian. The builder's Debian and the final one must be the same: the
# binary links to its C library and its OpenSSL. Nothing here depends on the processor: amd64 and arm64 build alike.

FROM rust:1.95-trixie AS build
# Keeps the caches of processors apart where one machine builds for several.
ARG TARGETARCH
# What librdkafka is built with; the image has a C compiler.
RUN apt-get update && apt-get install -y --no-install-recommends cmake pkg-config libssl-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The caches outlive a build, so that a change in weir does not compile its dependencies again. They are not part
# of the image: the binary and the notices are copied out.
RUN --mount=type=cache,target=/usr/local/cargo/registry,id=weir-registry \
    --mount=type=cache,target=/src/target,id=weir-target-${TARGETARCH} \
    mkdir /notices && cp LICENSE /notices && cargo run --locked -q -p xtask -- notices /notices/THIRD-PARTY.txt && \
    cargo build --profile dist --locked --bin weir && cp target/dist/weir /usr/local/bin/weir

FROM debian:trixie-slim
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="Frequency caps for marketing messages, between Kafka topics" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="docker.io/library/debian:trixie-slim"
# Packages besides the binary: libssl3t64, for TLS to Kafka; ca-certificates, for TLS to Kafka, Redis and S3; and tzdata, the time zones that weir
# uses (weir check and the start report their version). Rebuild the image to update them.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libssl3t64 tzdata && rm -rf /var/lib/apt/lists/*
# By number: a kubelet with runAsNonRoot cannot check whether a named user is root.
RUN groupadd --system --gid 10001 weir && useradd --system --uid 10001 --gid weir --no-create-home weir
COPY --from=build /usr/local/bin/weir /usr/local/bin/weir
COPY --from=build /notices /usr/share/doc/weir
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["weir", "health", "--config", "/etc/weir/weir.toml"]
# Without a shell, so that SIGTERM reaches weir, which drains and ends.
ENTRYPOINT ["weir"]
CMD ["run", "--config", "/etc/weir/weir.toml"]
