# Confide with a CPU build of torch, from Debian's own packages.
#
#   docker build -t confide .
#   docker run --rm -v "$PWD/runs:/runs" confide                                          # the demo, into ./runs/demo
#   docker run --rm -v "$PWD/runs:/runs" -p 127.0.0.1:8000:8000 --hostname localhost confide \
#     explore demo --data fashion-sample --host 0.0.0.0 --port 8000
#
# The explorer prints the address to open, with its token. --data: with --rm the key that signed the run is gone, and
# without it no folder may say which pictures are opened.
FROM debian:trixie-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-torch python3-venv \
 && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml setup.py README.md LICENSE /source/
COPY confide /source/confide
# The environment sees Debian's torch, so that pip fetches none of its own.
RUN python3 -m venv --system-site-packages /opt/confide \
 && /opt/confide/bin/pip install --no-cache-dir '/source[explore]' \
 && rm -rf /source
ENV PATH=/opt/confide/bin:$PATH
WORKDIR /runs
ENTRYPOINT ["confide"]
CMD ["demo", "--out", "demo"]
