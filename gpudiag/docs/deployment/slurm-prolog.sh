#!/bin/bash
# Slurm: checks the GPUs of each job before it starts; Prolog= in slurm.conf names this file.
# gpudiag is installed in /opt/gpudiag, and the reports need the folder /var/log/gpudiag.
[ -n "$SLURM_JOB_GPUS" ] || exit 0 # the job asked for no GPU
export PATH=/usr/bin:/bin:/opt/gpudiag/bin
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES="$SLURM_JOB_GPUS"
gpus=$(tr ',' '\n' <<< "$SLURM_JOB_GPUS" | wc -l)
exec gpudiag check --level quick --require-gpus "$gpus" --deadline 60 \
    --quiet -o "/var/log/gpudiag/$SLURM_JOB_ID.json" > /dev/null
