#!/bin/sh
# Writes the SHA-256 of Dockerfile.runner and of requirements.lock into the image
# catalog. Run it after a change of these files; a test fails until then.
set -eu
cd "$(dirname "$0")/.."
pin() {
	sum=$(sha256sum "$1" | cut -d' ' -f1)
	sed -i "s/^\( *$2: \).*/\1$sum/" configs/images.yaml
	echo "configs/images.yaml: $2: $sum"
}
pin Dockerfile.runner dockerfile_sha256
pin requirements.lock requirements_sha256
