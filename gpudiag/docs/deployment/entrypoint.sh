#!/bin/sh
# Starts a program only if every GPU was verified; GPUS says how many there must be.
gpudiag check --level quick --require-gpus "${GPUS:-1}" --strict || exit
exec "$@"
