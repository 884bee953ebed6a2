# syntax=docker/dockerfile:1
# CPU:  docker build -t ntrm .
# GPU:  docker build -t ntrm:gpu --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
#       docker run --rm --gpus all ntrm:gpu doctor
# Use:  docker run --rm -v "$PWD:/data" ntrm data check /data/my-dataset
#       docker run --rm -it -v "$PWD:/data" -p 127.0.0.1:8765:8765 ntrm serve /data/results --no-open --host 0.0.0.0 \
#         --public-url http://127.0.0.1:8765

FROM python:3.11-slim-bookworm AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
# The index only adds builds of torch; pip prefers its +cpu or +cu128 build of the pinned version.
RUN python -m venv /opt/ntrm \
 && /opt/ntrm/bin/pip install --no-cache-dir --constraint constraints.txt --extra-index-url "$TORCH_INDEX" ".[serve]"

FROM python:3.11-slim-bookworm
# A slide may come from a stranger: nothing in the container runs as root.
RUN useradd --create-home --uid 1000 ntrm
COPY --from=build /opt/ntrm /opt/ntrm
ENV PATH=/opt/ntrm/bin:$PATH PYTHONUNBUFFERED=1 MPLCONFIGDIR=/tmp/matplotlib
USER ntrm
WORKDIR /data
ENTRYPOINT ["ntrm"]
CMD ["--help"]
