#!/bin/bash
#SBATCH --export=NONE
#SBATCH --mail-type=NONE
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:h100:8
#SBATCH --mem-per-gpu=8192M

command=(apptainer exec --nv --bind=/scratch:/scratch --bind=/opt/data:/data:ro --pwd=/scratch '/images/torch 2.sif' python3 -P -m gridloom.agent '/scratch/runs/a run/it'"'"'s')

step=
forward() {
    again=1
    [ -z "$step" ] || kill -s "$1" "$step" 2>/dev/null
}
trap 'forward USR1' USR1
trap 'forward USR1' TERM

srun --kill-on-bad-exit=0 --wait=0 --mpi=none --cpu-bind=none --export=ALL --nodes=2 --ntasks=2 --ntasks-per-node=1 "${command[@]}" &
step=$!
again=1
while [ -n "$again" ]; do
    again=
    wait "$step"
    status=$?
done
exit "$status"
