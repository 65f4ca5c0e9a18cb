#!/bin/sh
# Start SLURM with one node on this machine, for the tests of `--on slurm`: sudo sh scripts/slurm.sh [FOLDER]
#
# Needs Debian's packages slurm-wlm and munge. Then: SLURM_CONF=FOLDER/slurm.conf pytest tests/comparison/test_sharing.py -k slurm
# in an environment with submitit. Ends with: pkill slurmctld; pkill slurmd.
set -eu

folder=${1:-/tmp/turnout-slurm}
mkdir -p "$folder/state" "$folder/spool" /run/munge
chown munge /run/munge
[ -f /etc/munge/munge.key ] || mungekey
pgrep munged > /dev/null || setpriv --reuid munge --regid munge --clear-groups munged

cat > "$folder/slurm.conf" <<END
ClusterName=turnout
SlurmctldHost=$(hostname)
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
NodeName=$(hostname) CPUs=$(nproc) State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF="$folder/slurm.conf"
slurmctld
slurmd
for _ in 1 2 3 4 5 6 7 8 9 10; do
    sinfo --noheader --format %T | grep -q idle && break
    sleep 1
done
sinfo
