# hipvit with ROCm 7.2 from Debian's packages alone: built and run by ci/rocm.
#
#   docker build -f docker/debian.Dockerfile -t hipvit .
#   docker run --rm --device /dev/kfd --device /dev/dri --group-add "$(getent group render | cut -d: -f3)" hipvit devices
#
# Arguments:
#
# - OFFLOAD_ARCHS: the GPUs for which hipvit's kernels are compiled, by default those in docker/offload-archs. For other GPUs
#   hipRTC compiles them at run time.
# - LIBRARY_ARCHS: the GPUs whose rocBLAS and hipBLASLt kernels are installed, separated by blanks. Each takes about 200 MB.
# - PROFILE: Cargo's profile. CI takes that of ci/rocm-checks, so that nothing is compiled twice.
ARG BASE=docker.io/library/debian:sid
ARG PROFILE=dist

FROM ${BASE} AS toolchain
COPY docker/install-rocm /usr/local/bin/
RUN install-rocm build
ENV ROCM_PATH=/usr

FROM toolchain AS build
ARG OFFLOAD_ARCHS
ARG PROFILE
WORKDIR /src
COPY . .
RUN HIPVIT_OFFLOAD_ARCHS="${OFFLOAD_ARCHS:-$(cat docker/offload-archs)}" cargo build --profile "${PROFILE}" --locked --features serve \
    && cp "target/${PROFILE}/hipvit" /usr/local/bin/

# The runtime image without hipvit.
FROM ${BASE} AS libraries
ARG LIBRARY_ARCHS="gfx90a gfx942 gfx1100"
COPY docker/install-rocm /usr/local/bin/
# The devices belong to the groups video and render.
RUN install-rocm runtime ${LIBRARY_ARCHS} && rm /usr/local/bin/install-rocm \
    && { getent group render || groupadd --system render; } \
    && useradd --uid 10001 --create-home --groups video,render hipvit

FROM libraries AS runtime
COPY LICENSE-* /usr/share/doc/hipvit/
COPY --from=build /usr/local/bin/hipvit /usr/local/bin/
USER 10001
WORKDIR /home/hipvit
# Serves by default; other commands are no services. Orchestrators probe /v2/health/ready.
HEALTHCHECK NONE
EXPOSE 8000
ENTRYPOINT ["hipvit"]
CMD ["serve", "--listen", "0.0.0.0:8000", "--log", "json"]
