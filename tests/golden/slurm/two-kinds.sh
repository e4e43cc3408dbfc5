#!/bin/bash
#SBATCH --job-name=both
#SBATCH --signal=B:USR1@60
#SBATCH --export=NONE
#SBATCH --mail-type=NONE
#SBATCH --requeue
#SBATCH --account=ml
#SBATCH --time=60
#SBATCH --partition=h100
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:h100:8
#SBATCH --cpus-per-task=32

#SBATCH hetjob
#SBATCH --account=ml
#SBATCH --time=60
#SBATCH --partition=a100
#SBATCH --nodes=4
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:a100:4
#SBATCH --cpus-per-task=16
#SBATCH --mem-per-cpu=4096M
#SBATCH --exclusive=user

command=(python3 -P -m gridloom.agent '/scratch/runs/a run/it'"'"'s')

step=
forward() {
    again=1
    [ -z "$step" ] || kill -s "$1" "$step" 2>/dev/null
}
trap 'forward USR1' USR1
trap 'forward USR1' TERM

srun --kill-on-bad-exit=0 --wait=0 --mpi=none --cpu-bind=none --export=ALL --het-group=0 --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=32 "${command[@]}" : \
    --kill-on-bad-exit=0 --wait=0 --mpi=none --cpu-bind=none --export=ALL --het-group=1 --nodes=4 --ntasks=4 --ntasks-per-node=1 --cpus-per-task=16 "${command[@]}" &
step=$!
again=1
while [ -n "$again" ]; do
    again=
    wait "$step"
    status=$?
done
exit "$status"
