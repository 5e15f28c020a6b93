# docker build --target cpu -t fedtailor .          docker build --target gpu -t fedtailor:gpu .
#
# The gateway with its engine:   docker run -p 8000:8000 -v fedtailor:/data --shm-size 2g fedtailor
# A key for a client:            docker run -v fedtailor:/data fedtailor python -m serve keys add CLIENT
# The page:                      docker run -p 7860:7860 --no-healthcheck fedtailor python -m ui --gateway http://HOST:8000
# Training:                      docker run -v fedtailor:/data fedtailor accelerate launch train/fed.py \
#                                    --config train/configs/NAME.yaml --out /data/runs/NAME
# With GPUs, add --gpus all and use fedtailor:gpu. Everything that is written goes to /data.

FROM debian:bookworm-slim AS system
# A compiler and Python's headers: torch and vLLM compile small kernels when they first need them.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates g++ libnuma1 make python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 fedtailor && install --directory --owner fedtailor --group fedtailor /data
WORKDIR /app
ENV PATH=/app/.venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    HF_HOME=/data/huggingface \
    FEDTAILOR_STORE=/data/store \
    FEDTAILOR_EXPORTS=/data/exports \
    FEDTAILOR_HOST=0.0.0.0 \
    FEDTAILOR_UI_HOST=0.0.0.0
# What `make install` reads, and no more: a change of the other sources does not install everything again.
COPY Makefile pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY adapters_store/torchvision_ops.py adapters_store/
VOLUME /data
EXPOSE 8000 7860
HEALTHCHECK --start-period=3m --interval=15s --timeout=5s --retries=4 \
    CMD python -c "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"
CMD ["python", "-m", "serve"]

FROM system AS gpu
# The wheels bring CUDA with them; the container toolkit brings the driver.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN make install EXTRA=gpu
COPY . .
USER fedtailor

FROM system AS cpu
RUN make install EXTRA=cpu
COPY . .
USER fedtailor
