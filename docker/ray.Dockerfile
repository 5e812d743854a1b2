# A node of a Ray cluster with the Python package, on AMD's own images: for `ray start`, KubeRay (kubernetes/ray.yaml) and
# `python -m hipvit.ray`.
#
#     docker build -f docker/ray.Dockerfile -t hipvit:ray .
#     docker run --rm --network host --shm-size 8g hipvit:ray ray start --head --port 6379 --block
#     docker run --rm --network host --shm-size 8g --device /dev/kfd --device /dev/dri \
#         --group-add "$(getent group render | cut -d: -f3)" -v /shared:/shared hipvit:ray ray start --address FIRST:6379 --block
#
# Arguments: ROCM, OFFLOAD_ARCHS and LIBRARY_ARCHS as in rocm.Dockerfile; RAY, the version of Ray, which all nodes share.
ARG ROCM=7.2.4

FROM docker.io/rocm/dev-ubuntu-24.04:${ROCM} AS rocm

FROM rocm AS build
ARG OFFLOAD_ARCHS
ARG RUST=1.95.0
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl gcc libc6-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --default-toolchain "$RUST" \
    && python3 -m venv /maturin && /maturin/bin/pip install --no-cache-dir maturin==1.16.0
ENV PATH=/root/.cargo/bin:$PATH ROCM_PATH=/opt/rocm
WORKDIR /src
COPY . .
# Ubuntu's glibc is newer than manylinux allows; the wheel is only for this image.
RUN HIPVIT_OFFLOAD_ARCHS="${OFFLOAD_ARCHS:-$(cat docker/offload-archs)}" \
    /maturin/bin/maturin build --profile dist --locked --manifest-path python/Cargo.toml --compatibility linux --out /wheels

# The libraries that hipvit opens and their dependencies, without compilers, headers, debuggers and profilers.
FROM rocm AS libraries
ARG LIBRARY_ARCHS="gfx90a gfx942 gfx1100"
COPY docker/install-rocm docker/collect-rocm /usr/local/bin/
RUN install-rocm runtime ${LIBRARY_ARCHS} && collect-rocm /collected

FROM docker.io/library/ubuntu:24.04
ARG RAY=2.60.0
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libatomic1 libdrm-amdgpu1 libelf1t64 libnuma1 libsqlite3-0 libstdc++6 libzstd1 python3-venv \
        wget zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && { getent group render || groupadd --system render; } \
    && useradd --uid 10001 --create-home --groups video,render hipvit
COPY --from=libraries /collected/ /
RUN echo /opt/rocm/lib >/etc/ld.so.conf.d/rocm.conf && ldconfig
COPY LICENSE-* /usr/share/doc/hipvit/
COPY --from=build /wheels/ /wheels/
# Install Ray with its dashboard, because KubeRay's probes query the dashboard's agent (with wget).
RUN python3 -m venv /opt/hipvit && /opt/hipvit/bin/pip install --no-cache-dir "ray[data,default,serve]==$RAY" pillow /wheels/*.whl && rm -r /wheels
ENV PATH=/opt/hipvit/bin:$PATH ROCM_PATH=/opt/rocm RAY_USAGE_STATS_ENABLED=0
USER 10001
WORKDIR /home/hipvit
# KubeRay has its own probes.
HEALTHCHECK NONE
CMD ["ray", "start", "--head", "--block"]
