#!/bin/sh
# Writes the SHA-256 of Dockerfile.runner into the image catalog. Run it after a
# change of that file; a test fails until then.
set -eu
cd "$(dirname "$0")/.."
sum=$(sha256sum Dockerfile.runner | cut -d' ' -f1)
sed -i "s/^\( *dockerfile_sha256: \).*/\1$sum/" configs/images.yaml
echo "configs/images.yaml: dockerfile_sha256: $sum"
