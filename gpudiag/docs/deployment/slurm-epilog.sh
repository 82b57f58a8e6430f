#!/bin/bash
# Slurm: loads the GPUs of each job for 20 seconds after it has ended, and drains the node if one fails. Epilog= in
# slurm.conf names this file; slurmd runs it as root, without a PATH. PrologEpilogTimeout must be more than 90.
# gpudiag is installed in /opt/gpudiag, and the reports need the folder /var/log/gpudiag.
[ -n "$SLURM_JOB_GPUS" ] || exit 0 # the job had no GPU
export PATH=/opt/gpudiag/bin:/usr/bin:/bin
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES="$SLURM_JOB_GPUS"
label=$(gpudiag check --level stress --for 20 --deadline 90 --quiet --format label \
    -o "/var/log/gpudiag/$SLURM_JOB_ID.epilog.json")
[ $? -eq 1 ] || exit 0 # 1: something failed; a GPU that is in use, or a run that broke, drains no node
case $(sinfo --noheader --Node --nodes="$SLURMD_NODENAME" --format=%E | head -n 1) in
none | "gpudiag: "*" (health check)")
    scontrol update "NodeName=$SLURMD_NODENAME" State=DRAIN "Reason=gpudiag: $label (epilog)"
    ;;
esac
exit 0 # anything else drains the node with the reason "Epilog error"
