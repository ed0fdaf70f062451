#!/usr/bin/env bash
# Runs the README's two commands on a Debian 12 on which nothing is installed. Takes long; by hand.
#
#   tests/fresh_machine.sh [--keep] [DIRECTORY] [-- COMMAND...]
#
# DIRECTORY (a new one under /var/tmp by default, 6 GB) gets a minimal Debian and a clean clone of
# this repository's HEAD. COMMAND replaces the two commands. --keep leaves the directory. Needs root
# and debootstrap; packages come from this machine's own apt sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SUITE=bookworm
COMMANDS=('deploy/quickstart.sh' 'deploy/quickstart.sh --local' 'tests/run.sh')
keep=false
directory=
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=true ;;
    --) shift; COMMANDS=("$*"); break ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "unknown option $1 (allowed: --keep, --)" >&2; exit 2 ;;
    *) directory=$1 ;;
  esac
  shift
done
[ "$(id -u)" -eq 0 ] || { echo "root is needed" >&2; exit 2; }

# apt_sources: "URI SUITE" of every Debian source of this machine that has the component main.
apt_sources() {
  local file
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$file" ] && sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) \([^ ]*\) .*\bmain\b.*/\2 \3/p' "$file"
  done
  for file in /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] && awk -v RS= '/Components:[^\n]*main/ {
      uri = suites = ""
      n = split($0, lines, "\n")
      for (i = 1; i <= n; i++) {
        if (lines[i] ~ /^URIs:/) { sub(/^URIs: */, "", lines[i]); uri = lines[i] }
        if (lines[i] ~ /^Suites:/) { sub(/^Suites: */, "", lines[i]); suites = lines[i] }
      }
      m = split(suites, names, " ")
      for (i = 1; i <= m; i++) print uri, names[i]
    }' "$file"
  done
}

# enter COMMAND: runs it in the new system with mounts and a process tree of its own, both of which
# vanish with it, whatever the command left running.
enter() {
  unshare --mount --pid --fork --kill-child --propagation private bash -euc '
    root=$1
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/run"
    exec chroot "$root" /usr/bin/env -i HOME=/root USER=root PATH="$PATH_INSIDE" TERM=dumb \
      bash -c "cd /root/hixld && $2"
  ' enter "$directory" "$1" </dev/null
}
export PATH_INSIDE=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

mapfile -t sources < <(apt_sources | grep " $SUITE" | sort -u)
mirror=$(printf '%s\n' "${sources[@]}" | awk -v suite="$SUITE" '$2 == suite {print $1; exit}')
[ -n "$mirror" ] || { echo "this machine has no apt source for $SUITE main" >&2; exit 2; }

directory=${directory:-$(mktemp -d /var/tmp/hixld-fresh-XXXXXX)}
mkdir -p "$directory"
directory=$(realpath "$directory")
finish() {
  if $keep; then echo "left: $directory"; else rm -rf --one-file-system "$directory"; fi
}
trap finish EXIT
trap 'exit 130' INT TERM

echo "Debian $SUITE to $directory"
debootstrap --variant=minbase "$SUITE" "$directory" "$mirror" >"$directory.log" 2>&1 ||
  { tail -20 "$directory.log" >&2; exit 1; }
rm -f "$directory.log"
printf 'deb %s main\n' "${sources[@]}" >"$directory/etc/apt/sources.list"
cp /etc/resolv.conf /etc/hosts "$directory/etc/"
git clone -q --no-local "file://$PWD" "$directory/root/hixld"

result=0
for command in "${COMMANDS[@]}"; do
  begin=$SECONDS
  echo "--- $command"
  if enter "$command"; then
    echo "--- passed on a fresh machine in $((SECONDS - begin)) s: $command"
  else
    echo "--- FAILED on a fresh machine after $((SECONDS - begin)) s: $command"
    result=1
  fi
done
exit $result
