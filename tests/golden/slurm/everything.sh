#!/bin/bash
#SBATCH --job-name="train \#1"
#SBATCH --dependency=afterok:17
#SBATCH --array=0-3%2
#SBATCH --signal=B:USR2@120
#SBATCH --chdir="/scratch/runs/a run"
#SBATCH --output="/scratch/runs/a run/%x-%j.log"
#SBATCH --error="/scratch/runs/a run/%x-%j.err"
#SBATCH --open-mode=append
#SBATCH --export=NIL
#SBATCH --mail-type=NONE
#SBATCH --no-requeue
#SBATCH --no-kill
#SBATCH --comment="job 17, attempt 2 \"retry\" \\ again"
#SBATCH --account=ml
#SBATCH --qos=high
#SBATCH --reservation=training
#SBATCH --exclude=n[007,009]
#SBATCH --time=2880
#SBATCH --partition=gpu
#SBATCH --constraint=ib&hdr
#SBATCH --nodes=4
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=1
#SBATCH --nodelist=n[001-002]
#SBATCH --gres=gpu:h100:8,nic:2
#SBATCH --cpus-per-task=64
#SBATCH --mem=0
#SBATCH --switches=1@30
#SBATCH --segment=2
#SBATCH --licenses=ansys:2,fluent
#SBATCH --exclusive

export GRIDLOOM_SITE=ours
export NOTE='two
lines and $HOME'

command=(python3 -P -m gridloom.agent '/scratch/runs/a run/it'"'"'s')

step=
forward() {
    again=1
    [ -z "$step" ] || kill -s "$1" "$step" 2>/dev/null
}
trap 'forward USR1' USR1
trap 'forward USR2' TERM
trap 'forward USR2' USR2

srun --kill-on-bad-exit=0 --wait=0 --mpi=none --cpu-bind=none --export=ALL --no-kill --nodes=4 --ntasks=4 --ntasks-per-node=1 --cpus-per-task=64 "${command[@]}" &
step=$!
again=1
while [ -n "$again" ]; do
    again=
    wait "$step"
    status=$?
done
exit "$status"
