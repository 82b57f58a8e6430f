#!/bin/bash
# Slurm: checks each node of this job. Submit it for nodes that you name, or for any eight, with their number of GPUs:
#     sbatch --nodelist='n[1-8]' --gres=gpu:4 slurm-batch.sh
#     sbatch --nodes=8 --gres=gpu:4 slurm-batch.sh --level stress --for 60
# The report and those of the nodes are in the folder gpudiag-JOB, and the job ends with 0 if every node passed.
#SBATCH --job-name=gpudiag
#SBATCH --exclusive
#SBATCH --no-kill
#SBATCH --no-requeue
#SBATCH --ntasks-per-node=1
#SBATCH --time=30
exec gpudiag fleet check --engine slurm --jobid "$SLURM_JOB_ID" -o "gpudiag-$SLURM_JOB_ID" -- "$@"
