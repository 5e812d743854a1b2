# hipvit on NVIDIA GPUs, with hip-on-cuda: to compare AMD and NVIDIA with one program.
#
#   docker build -f docker/cuda.Dockerfile -t hipvit:cuda .
#   docker run --rm --gpus all hipvit:cuda bench --device hip
#
# Arguments: CUDA, a version of docker.io/nvidia/cuda; CUDA_ARCHS, the compute capabilities for which kernels are compiled
# (for others they are compiled at run time, by NVRTC).
ARG CUDA=13.0.1

FROM docker.io/nvidia/cuda:${CUDA}-devel-ubuntu24.04 AS build
ARG CUDA_ARCHS=80,86,89,90,100,120
ARG RUST=1.95.0
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --default-toolchain "$RUST"
ENV PATH=/root/.cargo/bin:$PATH
WORKDIR /src
COPY . .
RUN HIPVIT_CUDA_ARCHS="$CUDA_ARCHS" cargo build --profile dist --locked -p hipvit-cli -p hip-on-cuda --features hipvit-cli/serve

# This image has cuDNN, for convolutions.
FROM docker.io/nvidia/cuda:${CUDA}-cudnn-runtime-ubuntu24.04
RUN useradd --uid 10001 --create-home hipvit
COPY LICENSE-* /usr/share/doc/hipvit/
COPY --from=build /src/target/dist/hipvit /src/target/dist/libhip_on_cuda.so /usr/local/bin/
ENV HIPVIT_PROVIDER=cuda
USER 10001
WORKDIR /home/hipvit
# Serves by default; other commands are no services. Orchestrators probe /v2/health/ready.
HEALTHCHECK NONE
EXPOSE 8000
ENTRYPOINT ["hipvit"]
CMD ["serve", "--listen", "0.0.0.0:8000", "--log", "json"]
