# hipvit on AMD's own images, with AMD's packages.
#
#   docker build -f docker/rocm.Dockerfile -t hipvit:rocm .
#   docker run --rm --device /dev/kfd --device /dev/dri --group-add "$(getent group render | cut -d: -f3)" hipvit:rocm devices
#
# Arguments: ROCM, a version of docker.io/rocm/dev-ubuntu-24.04, without `-complete`, which has every library for
# every GPU; OFFLOAD_ARCHS and LIBRARY_ARCHS as in debian.Dockerfile.
ARG ROCM=7.2.4

FROM docker.io/rocm/dev-ubuntu-24.04:${ROCM} AS rocm

FROM rocm AS build
ARG OFFLOAD_ARCHS
ARG RUST=1.95.0
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --default-toolchain "$RUST"
ENV PATH=/root/.cargo/bin:$PATH ROCM_PATH=/opt/rocm
WORKDIR /src
COPY . .
RUN HIPVIT_OFFLOAD_ARCHS="${OFFLOAD_ARCHS:-$(cat docker/offload-archs)}" cargo build --profile dist --locked --features serve

# The libraries that hipvit opens and their dependencies, without compilers, headers, debuggers and profilers.
FROM rocm AS libraries
ARG LIBRARY_ARCHS="gfx90a gfx942 gfx1100"
COPY docker/install-rocm docker/collect-rocm /usr/local/bin/
RUN install-rocm runtime ${LIBRARY_ARCHS} && collect-rocm /collected

FROM docker.io/library/ubuntu:24.04
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libatomic1 libdrm-amdgpu1 libelf1t64 libnuma1 libsqlite3-0 libstdc++6 libzstd1 zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && { getent group render || groupadd --system render; } \
    && useradd --uid 10001 --create-home --groups video,render hipvit
COPY --from=libraries /collected/ /
RUN echo /opt/rocm/lib >/etc/ld.so.conf.d/rocm.conf && ldconfig \
    && find /opt/rocm/lib -maxdepth 1 -type f -name '*.so*' -exec ldd {} + >/tmp/linked \
    && if grep 'not found' /tmp/linked; then exit 1; fi && rm /tmp/linked
COPY LICENSE-* /usr/share/doc/hipvit/
COPY --from=build /src/target/dist/hipvit /usr/local/bin/
ENV ROCM_PATH=/opt/rocm
USER 10001
WORKDIR /home/hipvit
# Serves by default; other commands are no services. Orchestrators probe /v2/health/ready.
HEALTHCHECK NONE
EXPOSE 8000
ENTRYPOINT ["hipvit"]
CMD ["serve", "--listen", "0.0.0.0:8000", "--log", "json"]
