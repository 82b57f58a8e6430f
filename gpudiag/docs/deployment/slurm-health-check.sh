#!/bin/bash
# Slurm: drains the node if gpudiag finds a fault, and resumes it when the check passes again. HealthCheckProgram= in
# slurm.conf names this file; slurmd ends it after 60 seconds, and sets no PATH. gpudiag is installed in /opt/gpudiag.
# It changes no reason but its own: a node that anybody else has drained stays as it is.
export PATH=/opt/gpudiag/bin:/usr/bin:/bin
# If slurm.conf is not where Slurm looks for it: export SLURM_CONF=/path/of/slurm.conf
node=${SLURMD_NODENAME:-$(hostname -s)}
reason=$(sinfo --noheader --Node --nodes="$node" --format=%E | head -n 1)
case $reason in
none | "gpudiag: "*" (health check)") ;;
*) exit 0 ;;
esac
label=$(gpudiag check --level quick --quiet --deadline 50 --format label)
status=$? # 0: passed, 1: failed; a run that verified nothing or broke changes nothing
if [ $status -eq 0 ] && [ "$reason" != none ]; then
    exec scontrol update "NodeName=$node" State=RESUME
elif [ $status -eq 1 ] && [ "$reason" != "gpudiag: $label (health check)" ]; then
    exec scontrol update "NodeName=$node" State=DRAIN "Reason=gpudiag: $label (health check)"
fi
