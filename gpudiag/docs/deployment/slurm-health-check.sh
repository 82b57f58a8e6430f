#!/bin/bash
# Slurm: drains the node if gpudiag finds a fault; HealthCheckProgram= in slurm.conf names this file.
# slurmd ends it after 60 seconds. gpudiag is installed in /opt/gpudiag.
export PATH=/usr/bin:/bin:/opt/gpudiag/bin
report=$(gpudiag check --level quick --quiet --deadline 50 --exit-scheme nagios)
[ $? -eq 2 ] || exit 0 # 2: critical; a run that verified nothing drains no node
reason=$(head -n 1 <<< "$report" | cut -d '|' -f 1)
node=${SLURMD_NODENAME:-$(hostname -s)}
exec scontrol update "NodeName=$node" State=DRAIN "Reason=$reason"
