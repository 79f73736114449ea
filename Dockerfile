# syntax=docker/dockerfile:1
# weir, built from this folder and put on a small Debian. The builder's Debian and the final one must be the same: the
# binary links to its C library.

FROM rust:1.95-bookworm AS build
# Tools to build librdkafka and OpenSSL; the image has a C compiler and perl.
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The caches outlive a build, so that a change in weir does not compile its dependencies again. They are not part
# of the image: the binary is copied out.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked --bin weir && cp target/dist/weir /usr/local/bin/weir

FROM debian:bookworm-slim
# Packages besides the binary: ca-certificates, for TLS to Kafka, Redis and S3; and tzdata, the time zones that weir
# uses (weir check and the start report their version). Rebuild the image to update them.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates tzdata && rm -rf /var/lib/apt/lists/*
# By number: a kubelet with runAsNonRoot cannot check whether a named user is root.
RUN groupadd --system --gid 10001 weir && useradd --system --uid 10001 --gid weir --no-create-home weir
COPY --from=build /usr/local/bin/weir /usr/local/bin/weir
USER 10001:10001
EXPOSE 8080
# Without a shell, so that SIGTERM reaches weir, which drains and ends.
ENTRYPOINT ["weir"]
CMD ["run", "--config", "/etc/weir/weir.toml"]
