# syntax=docker/dockerfile:1
# weir, built from this folder and put on a small Debian. The builder's Debian and the final one must be the same: the
# binary links to its C library.

FROM rust:1.95-bookworm AS build
# What librdkafka and OpenSSL are built with; the image has a C compiler and perl.
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The caches outlive a build, so that a change of ours does not compile everybody else's code again. They are no part
# of the image: the binary is copied out.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked --bin weir && cp target/dist/weir /usr/local/bin/weir

FROM debian:bookworm-slim
# For TLS to Kafka, Redis and S3.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
RUN useradd --system --no-create-home weir
COPY --from=build /usr/local/bin/weir /usr/local/bin/weir
USER weir
EXPOSE 8080
# No shell in between: SIGTERM reaches weir, which drains and ends.
ENTRYPOINT ["weir"]
CMD ["run", "--config", "/etc/weir/weir.toml"]
