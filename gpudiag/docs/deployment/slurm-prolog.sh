#!/bin/bash
# Slurm: checks the GPUs of each job before it starts. If one fails, the node is drained and Slurm starts the job
# elsewhere. Prolog= in slurm.conf names this file; slurmd runs it as root, without a PATH.
# gpudiag is installed in /opt/gpudiag, and the reports need the folder /var/log/gpudiag.
[ -n "$SLURM_JOB_GPUS" ] || exit 0 # the job asked for no GPU
export PATH=/opt/gpudiag/bin:/usr/bin:/bin
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES="$SLURM_JOB_GPUS"
gpus=$(tr ',' '\n' <<< "$SLURM_JOB_GPUS" | wc -l)
label=$(gpudiag check --level quick --require-gpus "$gpus" --deadline 60 --quiet --format label \
    -o "/var/log/gpudiag/$SLURM_JOB_ID.prolog.json")
[ $? -eq 1 ] || exit 0 # 1: something failed; a gpudiag that cannot run stops no job
case $(sinfo --noheader --Node --nodes="$SLURMD_NODENAME" --format=%E | head -n 1) in
none | "gpudiag: "*" (health check)")
    scontrol update "NodeName=$SLURMD_NODENAME" State=DRAIN "Reason=gpudiag: $label (prolog)"
    ;;
esac
exit 1
