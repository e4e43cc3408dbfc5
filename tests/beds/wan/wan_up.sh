#!/usr/bin/env bash
# Make two or more "sites", each a network namespace, joined by an emulated WAN
# with a delay, a rate and a loss of its own for each pair of sites.
#
#   wan_up.sh --dir /tmp/wan --sites "a b c" \
#       --link '* delay=20ms rate=1gbit' --link 'a c delay=60ms loss=0.1%'
#   ip netns exec wan-a ping 10.77.0.2
#   wan_up.sh --dir /tmp/wan --link '* delay=20ms rate=1gbit' --link 'a b down'
#   wan_down.sh --dir /tmp/wan
#
# With --hub bridge the sites stand on one switch in the kernel, as if no WAN were between them.
#
# Site number n (from 1, in the order given) has the address 10.77.0.n.  The
# delay is one-way: 20ms make a round trip of 40 ms.  Run again with the same
# directory, it replaces the links of the WAN that is up.  Needs root and
# python3, but no netem: see wan_link.py.
set -euo pipefail

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
die() { printf 'wan_up: %s\n' "$*" >&2; exit 1; }

dir='' sites='' prefix=wan net=10.77.0 mtu=1500 hub=shaped batch=0ms links=()
while (($#)); do
  (($# >= 2)) || die "$1 needs a value"
  case $1 in
    --dir) dir=$2 ;;
    --sites) sites=$2 ;;          # names, blank-separated
    --link) links+=("$2") ;;      # a line of the link file, see wan_link.py
    --prefix) prefix=$2 ;;        # namespaces are PREFIX-SITE and PREFIX-hub
    --net) net=$2 ;;              # first three numbers of the addresses
    --mtu) mtu=$2 ;;
    --hub) hub=$2 ;;              # shaped, or bridge: no delay, no limit, no process
    --batch) batch=$2 ;;          # see wan_link.py; takes less CPU, for what shares its cores
    *) die "unknown option $1" ;;
  esac
  shift 2
done
[[ $dir ]] || die "--dir is needed"
[[ $hub == shaped || $hub == bridge ]] || die "--hub is shaped or bridge, not '$hub'"
[[ $EUID == 0 ]] || die "run it as root"
mkdir -p "$dir"
dir=$(realpath "$dir")

hub_pid() { # the pid of the running hub, if it is this directory's
  local pid
  pid=$(cat "$dir/hub.pid" 2>/dev/null) && [[ $pid =~ ^[0-9]+$ ]] &&
    tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF "$dir/links" && echo "$pid"
}

((${#links[@]})) || links=('* delay=20ms rate=1gbit')
printf '%s\n' "${links[@]}" >"$dir/links.new"
mv "$dir/links.new" "$dir/links"
if pid=$(hub_pid); then
  [[ -z $sites || $sites == "$(cat "$dir/sites")" ]] || die "$dir is up with other sites: run wan_down.sh first"
  kill -HUP "$pid"
  exit 0
fi

[[ $sites ]] || die "--sites is needed"
read -ra names <<<"$sites"
((${#names[@]} >= 2 && ${#names[@]} <= 200)) || die "two sites at least"
command -v ip >/dev/null || { apt-get -qq update && apt-get -qq install -y iproute2; } >&2

# What an interrupted run left.
[[ -f $dir/namespaces ]] && "$here/wan_down.sh" --dir "$dir"
made=()
for ns in hub "${names[@]}"; do
  [[ $ns =~ ^[a-z0-9]{1,10}$ ]] || die "bad site name '$ns'"
  ! ip netns list | grep -qw -- "^$prefix-$ns" || die "the namespace $prefix-$ns is there already: choose a --prefix"
  ip netns add "$prefix-$ns"
  made+=("$prefix-$ns")
  printf '%s\n' "${made[@]}" >"$dir/namespaces"
  ip -n "$prefix-$ns" link set lo up
done
echo "$sites" >"$dir/sites"
in_ns() { local ns=$1; shift; ip netns exec "$prefix-$ns" "$@"; }

in_ns hub sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
n=0
for site in "${names[@]}"; do
  n=$((n + 1))
  in_ns "$site" sysctl -qw net.ipv6.conf.default.disable_ipv6=1 \
    net.ipv4.tcp_rmem='4096 131072 67108864' net.ipv4.tcp_wmem='4096 131072 67108864'
  ip -n "$prefix-hub" link add "to-$site" mtu "$mtu" type veth \
    peer name wan0 netns "$prefix-$site" mtu "$mtu" address "$(printf '02:00:00:00:00:%02x' $n)"
  ip -n "$prefix-hub" link set "to-$site" up
  ip -n "$prefix-$site" addr add "$net.$n/24" dev wan0
  ip -n "$prefix-$site" link set wan0 up
done

if [[ $hub == bridge ]]; then
  ip -n "$prefix-hub" link add switch type bridge
  ip -n "$prefix-hub" link set switch up
  for site in "${names[@]}"; do ip -n "$prefix-hub" link set "to-$site" master switch; done
  exit 0
fi
rm -f "$dir/stats.json"
(exec ip netns exec "$prefix-hub" setsid python3 "$here/wan_link.py" --links "$dir/links" \
  --stats "$dir/stats.json" --batch "$batch" "${names[@]}" >"$dir/hub.log" 2>&1 </dev/null) &
echo $! >"$dir/hub.pid"
disown
for _ in {1..100}; do
  [[ ! -s $dir/stats.json ]] || exit 0
  hub_pid >/dev/null || sleep 0.4 # ip and setsid are still to become python3
  sleep 0.1
done
cat "$dir/hub.log" >&2
die "the hub did not come up"
