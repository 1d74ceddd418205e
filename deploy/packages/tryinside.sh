#!/usr/bin/env bash
# tryinside.sh is the part of try.sh that runs in the Debian of its own.
set -euo pipefail

say() { printf '%-10s %s\n' "$step" "$*"; }
die() {
	printf '%s: NOT SO: %s\n' "$step" "$*" >&2
	exit 1
}
# want COMMAND…: must succeed.
want() { "$@" >/tmp/out 2>&1 || { cat /tmp/out >&2; die "$*"; }; }
has() { grep -qE -- "$1" /tmp/out || { cat /tmp/out >&2; die "lacks: $1"; }; }

all=(berth berthd berth-coordinator berth-agent berth-lab berth-python)

step=install
want dpkg -i /old/*.deb
has 'berth-agent: it starts by: systemctl enable --now berth-agent'
has 'berth-coordinator: it starts by: systemctl enable --now berth-coordinator'
want dpkg --audit
want id berth
[[ $(stat -c '%U %a' /etc/berth/tls) == 'berth 700' ]] || die 'the folder of keys'
want systemd-analyze verify /usr/lib/systemd/system/berth-coordinator.service /usr/lib/systemd/system/berth-agent.service
! [[ -s /tmp/out ]] || { cat /tmp/out; die 'systemd-analyze verify has something to say'; }
! systemctl is-enabled berth-agent >/dev/null 2>&1 || die 'the agent is enabled, before anybody asked'
for p in berth berthd berth-lab; do want "$p" version; done
say "user, folders, units: $(berth version)"

step=use
want man -M /usr/lib/berth/slurm/man -w sbatch
want bash -lc 'man -w berth-submit'
want bash -lc '! type sbatch'
sed -i 's/:-no}/:-first}/' /etc/default/berth
want bash -lc 'type sbatch squeue && man -w sbatch && sbatch --version'
has '/usr/lib/berth/slurm/sbatch'
has '/usr/lib/berth/slurm/man/man1/sbatch'
want bash -c 'source /usr/share/bash-completion/bash_completion && _completion_loader berth; complete -p berth'
say "manual pages, completion, links"
want berth cluster init --id try --dir /root/try --coordinator c1=localhost:7070
cp -a /root/try/c1/. /etc/berth/
chown -R berth:berth /etc/berth/tls /etc/berth/gossip.key
want berth config print coordinator --config /etc/berth/coordinator.yaml
say "cluster init, and a configuration that the coordinator takes"

step=job
useradd -m ada
dev=/tmp/dev
setpriv --reuid ada --regid ada --clear-groups env HOME=/home/ada berth dev --dir "$dev" >/tmp/dev.log 2>&1 &
lab=$!
as() { setpriv --reuid ada --regid ada --clear-groups env HOME=/home/ada "$@"; }
for _ in $(seq 120); do
	as berth node list -o name >/tmp/out 2>/dev/null && [[ -s /tmp/out ]] && break
	kill -0 "$lab" 2>/dev/null || { cat /tmp/dev.log; die 'berth dev ended'; }
	sleep 0.5
done
want bash -c 'cd /home/ada && setpriv --reuid ada --regid ada --clear-groups env HOME=/home/ada berth submit --wait --gpus 1 --gpu-mem 1GiB -- /bin/echo from a package'
has 'Submitted batch job 1'
grep -rqs 'from a package' /home/ada/ || die 'the output of the job is not there'
kill -INT "$lab"
wait "$lab" || true
say "berth dev from the packages ran a job"

step=upgrade
mkdir -p /var/lib/berth/coordinator /var/lib/berth/agent
echo state >/var/lib/berth/coordinator/raft.db
echo job >/var/lib/berth/agent/journal
want dpkg -i --force-confdef /new/*.deb
! grep -q 'it starts by' /tmp/out || die 'an upgrade says how to start what has run for long'
want dpkg --audit
grep -q ':-first}' /etc/default/berth || die 'the upgrade took the switch back'
[[ $(cat /var/lib/berth/coordinator/raft.db) == state ]] || die 'the upgrade took the state'
for p in "${all[@]}"; do [[ $(dpkg-query -W -f '${db:Status-Abbrev}${Version}' "$p") == 'ii '[!0]* || $(dpkg-query -W -f '${Version}' "$p") != 0.0.1 ]] || die "$p is still of 0.0.1"; done
say "to $(dpkg-query -W -f '${Version}' berth), configuration and state as they were"

step=remove
want dpkg -r "${all[@]}"
! [[ -e /usr/bin/berth || -e /usr/lib/systemd/system/berth-agent.service ]] || die 'programs are left'
[[ -e /etc/default/berth && -e /var/lib/berth/coordinator/raft.db && -e /etc/berth/coordinator.yaml ]] || die 'configuration or state is gone'
say "programs and units gone; configuration and state kept"

step=purge
want dpkg -P "${all[@]}"
has '/var/lib/berth/coordinator is kept'
has '/var/lib/berth/agent is kept'
has '/etc/berth is kept'
[[ $(cat /var/lib/berth/coordinator/raft.db) == state && $(cat /var/lib/berth/agent/journal) == job && -e /etc/berth/tls/ca.key ]] || die 'purge deleted what cannot be made again'
! [[ -e /etc/default/berth || -e /etc/profile.d/berth.sh ]] || die 'the packages own configuration is left'
for p in "${all[@]}"; do ! dpkg-query -W "$p" >/dev/null 2>&1 || die "$p is still known"; done
say "nothing of the packages left; state and keys kept, and said so"
